// What a block of the kernel for few tokens keeps in shared memory. Pure functions of the host and
// the device.
#pragma once

#include "halley/cuda/gemm/input_digits.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"

namespace halley::cuda {

inline constexpr int kNarrowTokens = 8;
/// They take turns along K: each has whole chunks.
inline constexpr int kNarrowWarps = 16;
/// Rows of 16 outputs that a block has at a time, at most.
inline constexpr int kNarrowRows = 4;
/// Outputs of all tokens whose sums the warps keep until they add them, at most; those of the rows
/// at a time where these are more. One for each thread, at most.
inline constexpr int kNarrowSums = 256;
/// Stages begin at multiples of this: bulk copies that keep their places in lines are faster.
inline constexpr int kCopyLine = 128;
/// Stages of a warp's ring, at most.
inline constexpr int kNarrowStagesMax = 4;

/// Bytes. Warps' rings first; a stage has codes [row][half][lane], groups and inputs.
struct MixedNarrow {
  int rows = 0;  // of 16 outputs, that a block has at a time
  int span = 0;  // rows whose sums are kept: a multiple of `rows`, or all
  int num_stages = 0;
  int groups = 0;  // in a stage
  int inputs = 0;
  int stage_bytes = 0;
  int digits = 0;     // of inputs of 16 bits (input_digits.cuh): all of K
  int sums = 0;       // [warp][token][sum_pitch]
  int sum_pitch = 0;  // numbers; stores of a warp meet no bank twice
  int barriers = 0;   // [warp][stage]
  int num_bytes = 0;
  bool has_digits = false;
};

struct MixedNarrowShape {
  MixedKind kind = MixedKind::kU4S8;
  int M = 0;
  int num_chunks = 0;  // of 128 inputs
  int group_size = 128;
};

/// Whether inputs of 16 bits become digits: of as many tokens as fill a product's columns, and
/// where half of the shared memory stays for weights on their way.
constexpr bool has_narrow_digits(const MixedNarrowShape& shape) {
  constexpr int kDigitBytesMax = 112 << 10;
  return !is_s8(shape.kind) && shape.M <= kDigitTokens &&
         int64_t{shape.num_chunks} * digit_bytes(shape.M) <= kDigitBytesMax;
}

/// `block_rows`: that a block has in all.
constexpr MixedNarrow mixed_narrow(const MixedNarrowShape& shape, int block_rows, int rows,
                                   int num_stages) {
  const int M = shape.M;
  MixedNarrow narrow = {.rows = rows, .num_stages = num_stages};
  const int passes = kNarrowSums / (16 * M * rows);
  narrow.span = passes > 1 ? passes * rows : rows;
  if (narrow.span > block_rows) narrow.span = block_rows;
  narrow.groups = rows * row_code_bytes(shape.kind);
  narrow.inputs =
      narrow.groups + rows * chunk_groups(shape.group_size) * 8 * group_entry_bytes(shape.kind);
  narrow.has_digits = has_narrow_digits(shape);
  const int input_bytes = narrow.has_digits ? 0 : is_s8(shape.kind) ? 1 : 2;
  const int stage_bytes = narrow.inputs + M * kChunkInputs * input_bytes;
  narrow.stage_bytes = (stage_bytes + kCopyLine - 1) / kCopyLine * kCopyLine;
  narrow.digits = kNarrowWarps * num_stages * narrow.stage_bytes;
  narrow.sums = narrow.digits + (narrow.has_digits ? shape.num_chunks * digit_bytes(M) : 0);
  narrow.sum_pitch = narrow.span * 16 + 4;
  narrow.barriers = narrow.sums + kNarrowWarps * M * narrow.sum_pitch * 4;
  narrow.num_bytes = narrow.barriers + kNarrowWarps * num_stages * 8;
  return narrow;
}

}  // namespace halley::cuda
