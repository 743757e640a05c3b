// Tiles of the grouped GEMM of quantized weights, and what lies where in a stage of its ring: for
// the host and the device alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>

#include "halley/core/dtype.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"

namespace halley::cuda {

/// A storage format of weights and the activations that they are multiplied with. The first six lie
/// in packed tiles, in the order of MixedKind. The last two are multiplied by wgmma alone.
enum class GroupedKind : uint8_t {
  kU4S8,
  kU4GroupS8,
  kU4F16,
  kU4Bf16,
  kU8F16,
  kU8Bf16,
  kS8,    // rows of s8 with per-channel scales; s8 activations
  kE4m3,  // rows of e4m3 with per-channel scales; e4m3 activations
  kF16,   // rows of f16; f16 activations
  kBf16,
};
/// Counts: the kinds of quantized weights come first.
inline constexpr int kNumQuantizedKinds = 8, kNumGroupedKinds = 10;

/// "u4_f16", ..., "s8", "e4m3", "f16", "bf16".
const char* name_of(GroupedKind kind);
inline std::ostream& operator<<(std::ostream& out, GroupedKind kind) {
  return out << name_of(kind);
}

/// The type of activations.
DType input_dtype(GroupedKind kind);

constexpr GroupedKind grouped_kind(MixedKind kind) { return static_cast<GroupedKind>(kind); }
static_assert(grouped_kind(MixedKind::kU8Bf16) == GroupedKind::kU8Bf16);

/// Done with accumulators before they are rounded.
enum class GroupedEpilogue : uint8_t {
  kNone,
  kActivation,  // y = f(sum)
  kGated        // y = f(gate's sum) * the other's: the weight has two halves
};

/// Whether a weight is rows, not packed tiles.
constexpr bool is_rows(GroupedKind kind) { return kind >= GroupedKind::kS8; }
/// Whether it is rows of f16 or bf16.
constexpr bool is_float_rows(GroupedKind kind) { return kind >= GroupedKind::kF16; }
/// Bytes of a value of rows.
constexpr int row_value_bytes(GroupedKind kind) { return is_float_rows(kind) ? 2 : 1; }
/// The kind of packed tiles that this is.
constexpr MixedKind mixed_kind(GroupedKind kind) { return static_cast<MixedKind>(kind); }
/// Whether activations are quantized, and have scales.
constexpr bool has_scales(GroupedKind kind) {
  return is_rows(kind) ? !is_float_rows(kind) : is_s8(mixed_kind(kind));
}
/// Whether accumulators are integers, and exact.
constexpr bool has_integer_sums(GroupedKind kind) {
  return has_scales(kind) && kind != GroupedKind::kE4m3;
}

/// A row block is 16 outputs; a stage has 128 inputs of some row blocks and of some tokens.
inline constexpr int kBlockOutputs = 16;
/// The second half of a joined weight in packed tiles begins at a multiple of this; a tile of the
/// GEMM has the row blocks of a half next to each other, LoneTile half as many as the others.
inline constexpr int kHalfOutputs = 64, kHalfOutputsMin = 32;
/// Bytes of one copy.
inline constexpr int kPieceBytes = 16;

/// Bytes of a token's 128 inputs.
constexpr int token_bytes(GroupedKind kind) {
  return has_scales(kind) ? kChunkInputs : 2 * kChunkInputs;
}
/// Bytes of a row block's 128 inputs.
constexpr int block_bytes(GroupedKind kind) {
  return is_rows(kind) ? kBlockOutputs * kChunkInputs : row_code_bytes(mixed_kind(kind));
}
/// Bytes of a row block's parameters of one group.
constexpr int block_group_bytes(GroupedKind kind) {
  return is_rows(kind) ? 0 : kBlockOutputs / 2 * group_entry_bytes(mixed_kind(kind));
}

/// Warps of a CTA share the outputs and, in LoneTile, the inputs of a stage; each has all tokens.
template <int kRowBlocksOf, int kTokensOf, int kInputWarpsOf, int kBlocksOf>
struct GroupedTileShape {
  static constexpr int kRowBlocks = kRowBlocksOf, kTokens = kTokensOf;
  static constexpr int kInputWarps = kInputWarpsOf;
  static constexpr int kOutputWarps = 4 / kInputWarps;
  static constexpr int kThreads = 128;
  /// CTAs that share an SM.
  static constexpr int kBlocks = kBlocksOf;
  static constexpr int kWarpBlocks = kRowBlocks / kOutputWarps;
  static constexpr int kTokenTiles = kTokens / 8;
  static_assert(kWarpBlocks % 2 == 0);  // a warp has both halves of a gated GEMM
};

/// So few tiles that not all SMs have some otherwise; warps share the inputs.
using LoneTile = GroupedTileShape<4, 16, 2, 3>;
/// For small M of an expert: the weights' bytes are what takes time.
using FewTile = GroupedTileShape<8, 16, 1, 3>;
using SomeTile = GroupedTileShape<8, 32, 1, 3>;
using ManyTile = GroupedTileShape<8, 64, 1, 2>;

/// The most tokens that an expert may have on average for the tiles of 16 and of 32 tokens, in
/// which then nearly all fit: a weight is read once.
inline constexpr int64_t kFewTokensMax = 10, kSomeTokensMax = 24;

/// A stage: tokens [kTokens][token_bytes], row blocks [kRowBlocks][block_bytes], their groups
/// [groups][kRowBlocks][block_group_bytes].
template <class Shape>
constexpr int weights_offset(GroupedKind kind) {
  return Shape::kTokens * token_bytes(kind);
}
template <class Shape>
constexpr int stage_bytes(GroupedKind kind, int num_groups) {
  const int of_a_block = block_bytes(kind) + num_groups * block_group_bytes(kind);
  return weights_offset<Shape>(kind) + Shape::kRowBlocks * of_a_block;
}

/// Stages of the ring: as many as leave room for the CTAs of an SM, whatever the group size.
template <class Shape>
constexpr int num_stages(GroupedKind kind) {
  constexpr int kSharedBytes = 227 * 1024, kOwnBytes = 1024, kTableBytes = 4096, kMost = 8;
  const int available = kSharedBytes / Shape::kBlocks - kOwnBytes - kTableBytes;
  return std::min(available / stage_bytes<Shape>(kind, kChunkInputs / 32), kMost);
}

/// The place of a piece of a row of `row_bytes`: the pieces of eight rows are spread over all
/// banks.
constexpr int swizzled_offset(int row_bytes, int row, int piece) {
  return row * row_bytes + (piece ^ (row % 8)) * kPieceBytes;
}

}  // namespace halley::cuda
