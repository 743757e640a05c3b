// What a launch of a product that makes its row passes to the GPU.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/normed_gemm.h"
#include "halley/cuda/gemm/row_source.h"

namespace halley::ptx {

struct WgmmaF16;
struct WgmmaBf16;
struct WgmmaE4m3;

}  // namespace halley::ptx

namespace halley::cuda {

struct NormedArguments {
  NormedPlan plan = {};
  int places = 0;  // outputs, or pairs of them
  RowSource row = {};
  CudaActivationQuant quant = {};  // of codes
  RowScales scales = {};           // of codes; those of the row are made with it
  const float* bias = nullptr;
  Activation activation = Activation::kSilu;
  void* y = nullptr;
};

/// Of a row of T. The instances are listed in CMakeLists.txt.
template <class Type, typename T>
void launch_normed_of(const CudaContext& context, const CUtensorMap& map,
                      const NormedArguments& args);

}  // namespace halley::cuda
