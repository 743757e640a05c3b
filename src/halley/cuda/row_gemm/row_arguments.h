// What a launch of a product of one row passes to the GPU.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/gemm/row_source.h"
#include "halley/cuda/row_gemm/row_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

struct RowArguments {
  RowPlan plan = {};
  const uint8_t* weights = nullptr;  // chunks, as mixed_layout.h or w4ax_layout.h says
  int chunk_bytes = 0;
  int group_shift = 0;  // log2 of a group's steps
  int N = 0;
  RowSource row = {};
  CudaActivationQuant quant = {};   // of s8
  const float* w_scales = nullptr;  // [N], of s8; of kW4ax [chunk][w_scales_pitch]
  int64_t w_scales_pitch = 0;
  const float* w_offsets = nullptr;  // [N] or null
  const float* bias = nullptr;       // [N] or null
  Activation activation = Activation::kSilu;
  void* y = nullptr;
  DType y_dtype = DType::kF16;
};

/// The instances are listed in CMakeLists.txt.
template <RowKind kKind>
void launch_row(const CudaContext& context, const RowArguments& args);

}  // namespace halley::cuda
