// What a launch of a product with streamed weights passes to the GPU.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/gemm/streamed_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::ptx {

struct WgmmaF16;
struct WgmmaBf16;
struct WgmmaE4m3;
struct WgmmaS8;

}  // namespace halley::ptx

namespace halley::cuda {

struct StreamedArguments {
  StreamedPlan plan = {};
  StreamedShared shared = {};
  int M = 0;
  int places = 0;  // outputs, or pairs of them: rows of the weight that a tile's first box reaches
  int tile_outputs = 0;
  int tile_places = 0;  // from a tile to the next
  int second_box = 0;   // from a row of the first box to that of the second
  RowScales scales = {};
  const float* bias = nullptr;
  bool is_gated = false;
  Activation activation = Activation::kSilu;
  void* y = nullptr;
  DType y_dtype = DType::kF16;
  int64_t y_stride = 0;  // elements
};

/// Queues the instance for the plan's tile and tokens.
using StreamedLaunch = void (*)(const CudaContext& context, const CUtensorMap& w_map,
                                const CUtensorMap& x_map, const StreamedArguments& args);

/// The instances are listed in CMakeLists.txt.
template <class Type>
void launch_streamed_of(const CudaContext& context, const CUtensorMap& w_map,
                        const CUtensorMap& x_map, const StreamedArguments& args);

}  // namespace halley::cuda
