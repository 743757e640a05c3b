// What a launch of an mma.sync product passes to the GPU, and where things lie in shared memory.
// Pure functions of the host and the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// What is multiplied: the kinds of mixed_layout.h, in their order, and blocks of 128 inputs.
enum class MmaKind : uint8_t {
  kU4S8,
  kU4GroupS8,
  kU4F16,
  kU4Bf16,
  /// Weights as kU4S8 lies, a scale for each output and block; activations of 4 and 8 bits, a scale
  /// for each token and block.
  kS4Blocks,
};

const char* name_of(MmaKind kind);
inline std::ostream& operator<<(std::ostream& out, MmaKind kind) { return out << name_of(kind); }

/// Of codes of 4 bits: those of 8 bits have no kernel here.
constexpr MmaKind mma_kind(MixedKind kind) { return static_cast<MmaKind>(kind); }
static_assert(mma_kind(MixedKind::kU4Bf16) == MmaKind::kU4Bf16);

/// What belongs to a chunk.
constexpr MixedKind layout_of(MmaKind kind) {
  return kind == MmaKind::kS4Blocks ? MixedKind::kU4S8 : static_cast<MixedKind>(kind);
}

/// Where the 16 bytes of a warp's first lane lie in a chunk, for the outputs `tile` * 16 and the
/// inputs `half` * 64; those of the others are behind them.
constexpr int codes_offset(MmaKind kind, int tile, int half) {
  return nibble_place(layout_of(kind), tile * 16, half * 64).byte;
}
static_assert(kW4axInputs == kChunkInputs && kTileOutputs == kChunkOutputs);
static_assert(kW4axChunkBytes == kChunkCodeBytes);

/// Whether activations are bytes.
constexpr bool has_bytes(MmaKind kind) {
  return kind != MmaKind::kU4F16 && kind != MmaKind::kU4Bf16;
}

/// A block computes 128 outputs of some tokens; a stage of its ring is one chunk of the weight with
/// the tokens' inputs.
struct MmaTile {
  int tokens = 0;
  int num_warps = 0;  // which share the outputs

  constexpr int num_threads() const { return num_warps * 32; }
};

/// Bytes of a token's inputs in a stage.
constexpr int row_bytes(MmaKind kind) { return has_bytes(kind) ? kChunkInputs : 2 * kChunkInputs; }

/// A stage: inputs [tokens][row_bytes], the chunk of the weight, of blocks their scales: 128 of
/// outputs, and one for each token.
constexpr int weights_offset(MmaKind kind, int tokens) { return tokens * row_bytes(kind); }
constexpr int block_scales_offset(MmaKind kind, int tokens) {
  return weights_offset(kind, tokens) + kChunkCodeBytes;
}
constexpr int stage_bytes(MmaKind kind, int tokens, int group_size) {
  const int scales = kind == MmaKind::kS4Blocks ? (kChunkOutputs + tokens) * 4 : 0;
  return weights_offset(kind, tokens) + chunk_bytes(layout_of(kind), group_size) + scales;
}

/// Where the 16 bytes `piece` of a token's inputs lie: so that eight tokens' pieces, and a token's
/// neighbouring ones, meet no bank twice.
constexpr int piece_offset(MmaKind kind, int token, int piece) {
  return token * row_bytes(kind) + (piece ^ (token % 8)) * 16;
}

/// Sums in shared memory: words from a token's to the next's. A warp's stores meet no bank twice.
inline constexpr int kSumsPitch = kChunkOutputs + 4;
constexpr int sums_bytes(int tokens) { return tokens * kSumsPitch * 4; }

struct MmaArguments {
  const uint8_t* weights = nullptr;  // chunks, as mixed_layout.h says
  int chunk_bytes = 0;
  int group_shift = 0;  // log2 of a group's steps of 32 inputs
  int num_chunks = 0;   // ceil(K / 128)
  int num_panels = 0;   // ceil(N / 128)
  int token_tiles = 0;
  int num_stages = 0;
  /// Parts of K, each the work of a block. With more than one, sums go to `partials`.
  int num_splits = 1;
  int M = 0, N = 0;
  const uint8_t* x = nullptr;
  int64_t x_stride_bytes = 0;
  int64_t x_row_bytes = 0;  // of K inputs
  /// Of kS4Blocks.
  const float* w_block_scales = nullptr;  // [num_chunks][num_panels * 128]
  const float* x_block_scales = nullptr;  // [num_chunks][x_scales_pitch]
  int64_t x_scales_pitch = 0;
  int num_s8_chunks = 0;  // the first ones have activations of 8 bits, the others of 4
  /// Of the sums: value = sum_factor * sum, then as RowScales says where w_scales are given.
  float sum_factor = 1;
  RowScales scales = {};
  const float* bias = nullptr;  // [N]
  void* y = nullptr;
  DType y_dtype = DType::kF16;
  int64_t y_stride = 0;        // elements
  bool has_wide_rows = false;  // rows of y begin at multiples of 16 bytes
  void* partials = nullptr;    // [num_splits][M][num_panels * 128] of s32 or f32
};

/// Queues one instance of the kernel.
using MmaLaunch = void (*)(const CudaContext& context, const MmaArguments& args, int shared_bytes);

/// y of the partial sums: added in the order of their parts, then scaled.
void launch_add_partials_s32(const CudaContext& context, const MmaArguments& args);
void launch_add_partials_f32(const CudaContext& context, const MmaArguments& args);

}  // namespace halley::cuda
