// The launches of the kernel for one or two rows and codes of 1 or 2 bits.
#pragma once

#include "halley/cuda/gemv/gemv_arguments.h"
#include "halley/cuda/gemv/gemv_planes.h"

namespace halley::cuda {

void launch_gemv_planes_f16(const CudaContext& context, int bits, const GemvPlanePlan& plan,
                            const GemvArguments& args);
void launch_gemv_planes_bf16(const CudaContext& context, int bits, const GemvPlanePlan& plan,
                             const GemvArguments& args);
void launch_gemv_planes_s8(const CudaContext& context, int bits, const GemvPlanePlan& plan,
                           const GemvArguments& args);

}  // namespace halley::cuda
