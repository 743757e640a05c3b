#include "halley/cuda/grouped_gemm/wgmma_grouped_gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/grouped_gemm/grouped_tiles.h"
#include "halley/cuda/grouped_gemm/wgmma_grouped_arguments.h"
#include "halley/cuda/runtime/tensor_map.h"

namespace halley::cuda {
namespace {

using Launch = void (*)(const CudaContext&, const CUtensorMap&, const WgmmaGroupedArguments&);

/// Tokens of tiles.
constexpr std::array<int, 4> kTokens = {16, 32, 64, 128};
using TileLaunches = std::array<Launch, kTokens.size()>;

/// Whether it is compiled. 16 tokens are multiplied by mma.sync, which takes fewer issue slots:
/// this helps packed tiles with 16-bit activations alone, since others wait for memory. Of 8 bits,
/// no consumer scales behind 32 tokens, and with 128 the ring would have two stages.
constexpr bool has_wgmma_tile(GroupedKind kind, int tokens) {
  const bool is_packed_float = !is_rows(kind) && !has_scales(kind);
  if (tokens == 16) return is_packed_float;
  return !is_packed_float || !is_u8(mixed_kind(kind)) || tokens == 64;
}

template <GroupedKind kKind, size_t... kTiles>
constexpr TileLaunches launches_of(std::index_sequence<kTiles...>) {
  return {[] {
    if constexpr (has_wgmma_tile(kKind, kTokens[kTiles])) {
      return Launch{launch_wgmma_grouped<kKind, kTokens[kTiles]>};
    } else {
      return Launch{nullptr};
    }
  }()...};
}

template <size_t... kKinds>
constexpr std::array<TileLaunches, kNumGroupedKinds> all_launches(std::index_sequence<kKinds...>) {
  return {
      launches_of<static_cast<GroupedKind>(kKinds)>(std::make_index_sequence<kTokens.size()>())...};
}
/// In the order of GroupedKind; null where it has no has_wgmma_tile().
constexpr auto kLaunches = all_launches(std::make_index_sequence<kNumGroupedKinds>());

/// The first whose tokens are enough for the slots that an expert has on average, with a third to
/// spare, or the largest.
size_t choose_tile(const GroupedGemm& gemm, const Matrix& y) {
  size_t found = 0;
  for (size_t tile = 0; tile < kTokens.size(); ++tile) {
    if (!has_wgmma_tile(gemm.kind, kTokens[tile])) continue;
    found = tile;
    if (y.num_rows * 4 <= int64_t{kTokens[tile]} * 3 * gemm.num_experts) break;
  }
  return found;
}

void check_gemm(const CudaContext& context, const GroupedGemm& gemm, const Matrix& y) {
  if (context.device.compute_major != 9 || context.device.compute_minor != 0) {
    throw UnsupportedError(str("grouped GEMM by wgmma: expected compute capability 9.0, got ",
                               context.device.compute_major, ".", context.device.compute_minor,
                               ". Use quantized_grouped_gemm()."));
  }
  check_grouped_gemm(gemm, y);
  HALLEY_CHECK(gemm.x.num_rows == y.num_rows || gemm.x.num_rows == 1, gemm.x.num_rows, y.num_rows);
  HALLEY_CHECK(gemm.second_half_begin % kHalfOutputs == 0, gemm.second_half_begin);
  HALLEY_CHECK(is_rows(gemm.kind) == (gemm.maps != nullptr), gemm.kind);
  HALLEY_CHECK(!needs_row_sums(gemm.kind) || gemm.x_scales.x_sums != nullptr, gemm.kind);
}

/// The ring and all of shared memory, for a tile.
void set_ring(const CudaContext& context, const GroupedGemm& gemm, int tokens,
              WgmmaGroupedArguments* args) {
  const MixedKind kind = ring_kind(gemm.kind);
  const MixedTile tile = {tokens, kWgmmaTileRows};
  MixedArguments& ring = args->ring;
  ring.chunk_bytes =
      is_rows(gemm.kind) ? kChunkOutputs * kStageRowBytes : chunk_bytes(kind, gemm.group_size);
  const auto available =
      static_cast<int>(context.device.shared_bytes_max) - slot_table_bytes(args->num_experts);
  ring.num_stages = num_stages_of(kind, tile, ring.chunk_bytes, /*num_ranks=*/1, available);
  HALLEY_CHECK(ring.num_stages >= 2, gemm.kind, tokens, ring.num_stages);
  ring.shared = mixed_shared(kind, tile, ring.chunk_bytes, ring.num_stages, /*num_ranks=*/1);
  args->tables = ring.shared.num_bytes - kStageAlignment;
}

}  // namespace

CUtensorMap wgmma_rows_map(ConstMatrix rows) {
  return box_map({.matrix = rows,
                  .box_cols = kStageRowBytes * 8 / static_cast<int>(bits_of(rows.dtype)),
                  .box_rows = kSubTileRows});
}

void wgmma_grouped_gemm(const CudaContext& context, const GroupedGemm& gemm, Matrix y) {
  check_gemm(context, gemm, y);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const ConstMatrix& x = gemm.x;
  const bool is_gated = gemm.epilogue == GroupedEpilogue::kGated;
  WgmmaGroupedArguments args;
  static_cast<GroupedBaseArguments&>(args) = base_arguments(gemm, y);
  args.maps = gemm.maps;
  args.output_tiles = num_output_tiles(args.num_outputs, is_gated, kWgmmaTileRows);
  args.num_stages_of_k = static_cast<int>(ceil_div<int64_t>(x.num_cols, kChunkInputs));
  if (is_rows(gemm.kind)) {
    args.num_stages_of_k = static_cast<int>(
        ceil_div<int64_t>(x.num_cols * row_value_bytes(gemm.kind), kStageRowBytes));
  } else {
    args.ring.group_shift = std::countr_zero(static_cast<unsigned>(gemm.group_size / kStepInputs));
    // Both halves have as many outputs.
    const int64_t outputs = gemm.second_half_begin + y.num_cols;
    args.num_sub_tiles = static_cast<int>(2 * ceil_div<int64_t>(outputs, kChunkOutputs));
    args.second_half_tile = static_cast<int>(gemm.second_half_begin / kSubTileRows);
  }
  args.has_one_row = x.num_rows == 1;
  args.is_in_eights = y.num_cols % 8 == 0 && row_alignment(y) == kPieceBytes;
  const size_t tile = choose_tile(gemm, y);
  set_ring(context, gemm, kTokens[tile], &args);
  const CUtensorMap x_map =
      box_map({.matrix = x,
               .box_cols = kStageRowBytes * 8 / static_cast<int>(bits_of(x.dtype)),
               .box_rows = kTokens[tile]});
  kLaunches[static_cast<size_t>(gemm.kind)][tile](context, x_map, args);
}

}  // namespace halley::cuda
