// What a launch of a product that makes its row passes to the GPU.
#pragma once

#include <cuda.h>

#include "halley/cuda/gemm/normed_gemm.h"
#include "halley/cuda/gemm/row_source.h"

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

void launch_normed_f16(const CudaContext& context, const CUtensorMap& map,
                       const NormedArguments& args);
void launch_normed_e4m3(const CudaContext& context, const CUtensorMap& map,
                        const NormedArguments& args);
void launch_normed_bf16(const CudaContext& context, const CUtensorMap& map,
                        const NormedArguments& args);

}  // namespace halley::cuda
