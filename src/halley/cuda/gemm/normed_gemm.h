// A product of one row that begins with what makes the row, the addition to the residual stream and
// its norm or the rounding to codes: each block makes the row itself while its first weights are on
// their way.
#pragma once

#include <cstdint>
#include <optional>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/gemm/streamed_plan.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// All in device memory; rows begin at multiples of 16 bytes.
struct NormedOperands {
  /// [1, K] f16 or bf16, of numbers the weight's type: the row, or with a norm what is added to
  /// hidden before; then no data: nothing is.
  ConstMatrix x = {};
  std::optional<NormParams> norm = std::nullopt;  // root mean square; of numbers there must be one
  ConstMatrix hidden = {};                        // [1, K] f32, with a norm
  Matrix sum = {};     // [1, K] f32, hidden + x; not the memory of hidden. With a norm and x
  ConstMatrix w = {};  // [N, K] f16, bf16 or f8_e4m3
  CudaActivationQuant quant = {};                 // of e4m3: one scale for the row
  RowScales scales = {};                          // of e4m3: the weight's, without offsets
  const float* bias = nullptr;                    // [N]
  std::optional<Activation> gate = std::nullopt;  // as in StreamedOperands
};

/// How outputs lie among the blocks.
struct NormedPlan {
  /// A tile has 1, 2 or 4 strips of up to 64 outputs, a multiple of 8. Where outputs are in pairs,
  /// gates are in the first half of the strips and their factors in the second.
  int strips = 1;
  int strip_rows = 8;
  bool is_gated = false;
  int num_tiles = 1;
  int num_blocks = 1;
  int num_chunks = 1;    // of 128 bytes of inputs
  int stage_chunks = 1;  // of a strip that are copied at a time, the last time fewer
  int stage_bytes = 0;
  int num_stages = 0;
  /// Stages that are copied before the row is there: more would stand in its way.
  int early_stages = 0;
  // Offsets in shared memory from the first multiple of 1024 on.
  int inputs = 0, scratch = 0, barriers = 0, num_bytes = 0;

  /// Outputs of a tile, or pairs of them.
  constexpr int tile_places() const { return (is_gated ? strips / 2 : strips) * strip_rows; }
};

/// Nothing where the kernel does not take the shape: more columns (row_source.h), other rows, or
/// numbers of 16 bits that two blocks share in streamed_gemm().
std::optional<NormedPlan> plan_normed(const StreamedShape& shape, bool has_norm,
                                      const StreamedDevice& device);

/// sum = hidden + x; y = product of norm(sum), or of x. y [1, N] ([1, N / 2] with a gate) of w's
/// type, of e4m3 f16 or bf16 as x.
/// Requires  compute capability 9.0, a plan, K a multiple of 128 bytes, of e4m3 of 256
/// Numerics  the bits of add_norm_rows() and streamed_gemm(); of e4m3 with the codes of
///           quantize_rows() between, and sums that may have another order
void normed_gemm(const CudaContext& context, const NormedOperands& operands, Matrix y);

}  // namespace halley::cuda
