// A product of one row that begins with the addition to the residual stream and its norm: each
// block makes the norm itself while its first weights are on their way.
#pragma once

#include <cstdint>
#include <optional>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/streamed_plan.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// All in device memory; rows begin at multiples of 16 bytes.
struct NormedOperands {
  NormParams norm = {};     // root mean square
  ConstMatrix hidden = {};  // [1, K] f32
  ConstMatrix block = {};   // [1, K] of the weight's type, added to hidden; no data: nothing is
  Matrix sum = {};          // [1, K] f32, what was added; not the memory of hidden. With a block
  ConstMatrix w = {};       // [N, K] f16 or bf16
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

inline constexpr int64_t kNormedColumnsMax = 8192;

/// Nothing where the kernel does not take the shape: more columns, other rows, or inputs that two
/// blocks share in streamed_gemm().
std::optional<NormedPlan> plan_normed(const StreamedShape& shape, const StreamedDevice& device);

/// sum = hidden + block; y = product of norm(sum), with the bits of add_norm_rows() and
/// streamed_gemm(). y [1, N] ([1, N / 2] with a gate) of w's type.
/// Requires  compute capability 9.0, a plan, K a multiple of 64
void normed_gemm(const CudaContext& context, const NormedOperands& operands, Matrix y);

}  // namespace halley::cuda
