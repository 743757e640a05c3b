// The W4Ax product by a kernel of the caller's.
#pragma once

#include "halley/cuda/w4ax_gemm/w4ax_arguments.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {

struct W4axPlannedLaunch {
  TilePlan plan = {};
  W4axLaunch launch = nullptr;  // of the plan's tile
};

/// As w4ax_gemm_planned(). What the weight's codes mean is the kernel's.
void w4ax_gemm_launched(const CudaContext& context, const W4axWeight& weight,
                        const W4axOperands& operands, const W4axPlannedLaunch& planned, Matrix y);

}  // namespace halley::cuda
