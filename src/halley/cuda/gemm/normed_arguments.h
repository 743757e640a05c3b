// What a launch of a product behind a norm passes to the GPU.
#pragma once

#include <cuda.h>

#include "halley/cuda/gemm/normed_gemm.h"

namespace halley::cuda {

struct NormedArguments {
  NormedPlan plan = {};
  NormParams norm = {};
  int places = 0;      // outputs, or pairs of them
  int num_inputs = 0;  // K
  const float* hidden = nullptr;
  const void* block = nullptr;
  float* sum = nullptr;
  const float* bias = nullptr;
  Activation activation = Activation::kSilu;
  void* y = nullptr;
};

void launch_normed_f16(const CudaContext& context, const CUtensorMap& map,
                       const NormedArguments& args);
void launch_normed_bf16(const CudaContext& context, const CUtensorMap& map,
                        const NormedArguments& args);

}  // namespace halley::cuda
