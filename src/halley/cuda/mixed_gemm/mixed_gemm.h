// Products of weights of 4 and 8 bits on Hopper: codes are decoded in registers and multiplied by
// the tensor cores at once. See README.md in this folder for layouts, pipeline and limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/mixed_gemm/mixed_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

/// A packed weight in device memory. Move-only. Products that run at the same time must be of one
/// stream: they share counters.
struct MixedWeight {
  MixedKind kind = MixedKind::kU4S8;
  int64_t N = 0, K = 0;
  int group_size = 128;  // as stored
  DeviceBuffer chunks = {};
  DeviceBuffer scales = {};  // w_scales [N], then w_offsets [N] where it has some
  bool has_offsets = false;
  DeviceBuffer counters = {};  // kSlotsMax uint32_t, zero between products

  MixedWeight() = default;
  /// Copies, and waits for it. Throws DeviceError where the memory does not suffice.
  explicit MixedWeight(const MixedPacked& packed);
  /// Memory for a weight that is packed on the GPU: chunks and scales have no contents yet. M does
  /// not matter.
  MixedWeight(const MixedShape& shape, bool with_offsets);

  /// Whether products need the sums of activations' codes: for offsets, or because groups of s8 are
  /// decoded to numbers that are 128 too large.
  bool needs_sums() const { return has_offsets || kind == MixedKind::kU4GroupS8; }
  /// [N] of s8, and offsets where it has some; else null.
  const float* w_scales() const {
    return is_s8(kind) ? reinterpret_cast<const float*>(scales.data()) : nullptr;
  }
  const float* w_offsets() const { return has_offsets ? w_scales() + N : nullptr; }
  size_t num_bytes() const {
    return chunks.num_bytes() + scales.num_bytes() + counters.num_bytes();
  }
};

struct MixedOperands {
  /// [M, K] of i8, f16 or bf16 as the weight's kind says, at multiples of 16 bytes, and rows too.
  ConstMatrix x;
  /// Of s8: x_scales [M] (or one, is_x_tensor), and x_sums [M] where the weight needs_sums(). The
  /// weight's own members are not read.
  RowScales x_scales = {};
  const float* bias = nullptr;  // [N]
  /// The launch may begin, and read weights, before the kernel ahead of it on the stream has ended:
  /// allowed where that is a kernel, and nothing else that is in flight writes the weight.
  bool starts_early = false;
};

MixedShape mixed_shape(const MixedWeight& weight, int64_t M);
MixedDevice mixed_device(const CudaContext& context);

/// What sums are scaled by: the weight's scales and offsets beside x's; nothing where x is not s8.
RowScales mixed_scales(const MixedWeight& weight, const RowScales& x_scales);

/// y[m,n] = x_scale[m] * (w_scale[n] * sum - w_offset[n] * x_sum[m]) + bias[n] of s8 activations,
/// sum + bias[n] of others; sum over k of x[m,k] and the weight's numbers (mixed_layout.h).
/// Shapes: x [M, K], y [M, N]; M may be 0. y is f16, bf16 or f32, its rows fastest at multiples of
/// 16 bytes.
/// Requires: compute capability 9.0; the plan's workspace_bytes() of the context's workspace.
/// Numerics: s8 exact in s32, so that a row of y depends on its row of x alone. Others: f32 sums
/// whose order the plan sets, and with it M; the same plan gives the same bits always. Their
/// weights are rounded to the activations' type in tiles of more than 16 tokens (groups of 128: of
/// more than 48), and not in others nor where MixedPlan::is_narrow.
void mixed_gemm(const CudaContext& context, const MixedWeight& weight,
                const MixedOperands& operands, Matrix y);

/// The same with a plan of the caller's for this shape: for tests and tuning.
void mixed_gemm_planned(const CudaContext& context, const MixedWeight& weight,
                        const MixedOperands& operands, const MixedPlan& plan, Matrix y);

}  // namespace halley::cuda
