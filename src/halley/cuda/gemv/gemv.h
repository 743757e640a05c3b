// Products of a few rows and a weight of 8, 3, 2 or 1 bits: as fast as the codes can be read, by
// mma.sync with weights from registers. See README.md in this folder.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/gemv/gemv_digits.h"
#include "halley/cuda/gemv/gemv_plan.h"
#include "halley/cuda/gemv/gemv_planes.h"
#include "halley/cuda/gemv/gemv_weight.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Of a launch: two of mma.sync's. More of them run in several launches.
inline constexpr int64_t kGemvRowsMax = 16;

struct GemvOperands {
  /// [M, K] of f16 or bf16; of i8 for weights of GemvInputs::kS8. Rows at multiples of 16 bytes.
  ConstMatrix x;
  const float* x_scales = nullptr;  // [M], of i8
  const float* bias = nullptr;      // [N]
};

/// y[m,n] = sum over k of x[m,k] scale (code - zero) (times x_scales[m]) + bias[n].
/// Shapes    y [M, N] of f16, bf16 or f32, any strides; M may be 0 and is not limited
/// Requires  why_not_gemv() of the weight is empty
/// Numerics  codes are exact in x's type; f32 sums by the tensor cores (s32 for i8, exact within a
///           group). Where outputs have one scale, it multiplies the sum of all inputs. One or two
///           rows that plan_gemv_digits() or plan_gemv_planes() takes: x of 16 bits is rounded to
///           2^-22 of the largest of 128 inputs, whose sums are exact. The order does not depend
///           on the number of rows: a row has the same bits in every batch that takes the same
///           kernel.
/// The weight is read before the kernel queued last is done (programmatic dependent launch), so it
/// may not write it; all else is read and written behind it.
void gemv(const CudaContext& context, const GemvWeight& weight, const GemvOperands& operands,
          Matrix y);

/// The same by the kernel for one or two rows and codes of 8 or 3 bits, whose plan has blocks.
void gemv_by_digits(const CudaContext& context, const GemvWeight& weight,
                    const GemvOperands& operands, const GemvDigitPlan& plan, Matrix y);

/// The same by the kernel for one or two rows and codes of 2 bits or 1, whose plan has blocks.
void gemv_by_planes(const CudaContext& context, const GemvWeight& weight,
                    const GemvOperands& operands, const GemvPlanePlan& plan, Matrix y);

/// The same by the kernel for more rows, by a plan of the caller's: for tests and tuning.
void gemv_planned(const CudaContext& context, const GemvWeight& weight,
                  const GemvOperands& operands, const GemvPlan& plan, Matrix y);

}  // namespace halley::cuda
