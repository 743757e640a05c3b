// The arguments of a launch of the grouped GEMM by wgmma, and what a CTA keeps in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/grouped_gemm/grouped_gemm.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/mixed_gemm/mixed_arguments.h"
#include "halley/cuda/mixed_gemm/mixed_tile.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// A tile has 256 rows of weights in four m64 sub-tiles, two of each warpgroup, that of the second
/// behind that of the first; of a gated GEMM a warpgroup has 64 rows of the gate, and the same 64
/// of the other factor.
inline constexpr int kWgmmaTileRows = 256;
inline constexpr int kSubTileRows = 64;
inline constexpr int kNumSubTiles = kWgmmaTileRows / kSubTileRows;
/// Bytes of a row of weights, and of a token, in a stage of rows.
inline constexpr int kStageRowBytes = 128;

/// The kind of packed tiles whose stages a kind's are like: rows have those of s8, of 128 bytes.
constexpr MixedKind ring_kind(GroupedKind kind) {
  return is_rows(kind) ? MixedKind::kU4S8 : mixed_kind(kind);
}

struct WgmmaGroupedArguments : GroupedBaseArguments {
  /// The ring alone: stages, packed tiles, shared memory.
  MixedArguments ring;
  int tables = 0;  // offset in shared memory of SlotTables
  const CUtensorMap* maps = nullptr;
  int num_stages_of_k = 0;
  int output_tiles = 0;
  int num_sub_tiles = 0;     // of a weight in packed tiles
  int second_half_tile = 0;  // sub-tiles before the second half
  bool has_one_row = false;  // of x, for all slots
  /// Eight neighbours of y can be written at once.
  bool is_in_eights = false;
};

/// The instances are listed in CMakeLists.txt.
template <GroupedKind kKind, int kTokens>
void launch_wgmma_grouped(const CudaContext& context, const CUtensorMap& x_map,
                          const WgmmaGroupedArguments& args);

}  // namespace halley::cuda
