// How a product of a 4-bit weight and one row is dealt out, and what its blocks keep in shared
// memory. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/mixed_plan.h"

namespace halley::cuda {

/// They take turns along K: each has whole chunks of 128 inputs.
inline constexpr int kRowWarps = 16;
/// Strips of 16 outputs that a warp multiplies at a time, at most.
inline constexpr int kRowStrips = 4;
/// Stages of a warp's ring, at most.
inline constexpr int kRowStagesMax = 8;
/// Outputs whose sums the warps keep until they add them, at most.
inline constexpr int kRowSums = 256;

/// What codes of 4 bits mean and what they are multiplied with, of what the kernel takes.
enum class RowKind : uint8_t {
  kNone,    // others
  kU4S8,    // as MixedKind
  kU4F16,   // as MixedKind
  kU4Bf16,  // as MixedKind
  kW4ax,    // cuda/w4ax_gemm: s8 activations, both with scales of blocks of 128 inputs
};

const char* name_of(RowKind kind);
inline std::ostream& operator<<(std::ostream& out, RowKind kind) { return out << name_of(kind); }

RowKind row_kind(MixedKind kind);

struct RowShape {
  RowKind kind = RowKind::kU4S8;
  int64_t N = 0, K = 0;
  int group_size = 128;  // as stored: 32, 64 or 128
  /// Outputs are gates and, in the second half, what they are multiplied with.
  bool is_gated = false;
  bool has_norm = false;
  /// Inputs of codes are packed in an order: the whole row is numbers before it is codes.
  bool has_input_perm = false;
};

/// A place is a strip of 16 outputs, or two: one of gates and one of factors. Blocks have
/// consecutive places. Sizes and offsets are bytes; warps' rings of stages come first.
struct RowPlan {
  int num_places = 0;
  int num_segments = 1;  // strips of a place
  int num_blocks = 0;
  int num_chunks = 0;  // of 128 inputs
  int places = 0;      // that a block has at a time
  int span = 0;        // places whose sums are kept: a multiple of `places`, or all
  int num_stages = 0;
  int early_stages = 0;  // that are copied before earlier kernels are done
  int groups = 0;        // in a stage, behind codes [strip][1024]
  int stage_bytes = 0;
  int inputs = 0;      // the row as the tensor cores take it
  int sums = 0;        // [warp][segment][span * 16]
  int input_sums = 0;  // f32; of 16 bits: [chunk][step], of kW4ax scales of inputs: [chunk]
  int numbers = 0;     // the row of 16 bits, where inputs have an order
  int scratch = 0;     // kRowScratchWords
  int barriers = 0;
  int num_bytes = 0;
};

/// Nothing where the kernel does not take the shape: kU4GroupS8 (a step of one row was 5 % slower
/// with it on an H200), rows that are too long, K no multiple of 8, or gates that are no whole
/// strips.
std::optional<RowPlan> plan_row(const RowShape& shape, const MixedDevice& device);

}  // namespace halley::cuda
