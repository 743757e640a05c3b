// Producer warps of the prefill kernel for fp8, int8 and int4 caches: cp.async brings quantized
// values to shared memory, and the warps dequantize them to f16 in the swizzled stages that wgmma
// reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/attention/prefill_mover.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::attention {

/// 16 bytes of quantized values to the f16 of the same integers (or e4m3 values), in natural order.
template <KvDType kType, int kWords>
__device__ inline void to_f16_pairs(const Words<16>& packed, uint32_t (&pairs)[kWords]) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    if constexpr (kType == KvDType::kInt4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // elements i and i + 4 of the word's eight
        const uint32_t both = packed.words[word] >> (8 * half);
        const uint32_t low = low_nibbles(both), high = high_nibbles(both);
        pairs[4 * word + half] = __byte_perm(low, high, 0x5410u);
        pairs[4 * word + half + 2] = __byte_perm(low, high, 0x7632u);
      }
    } else {
      pairs[2 * word] = bytes_to_f16x2<kType, false>(packed.words[word]);
      pairs[2 * word + 1] = bytes_to_f16x2<kType, true>(packed.words[word]);
    }
  }
}

/// Dequantizes with a row's scale and zero: q * scale + zero. For e4m3, whose scales are f32, it is
/// q * 2^-5 * (scale * 2^5): precise in f16 for rows of magnitudes from 2^-10 to the greatest f16.
template <KvDType kType>
struct RowDequantizer {
  static constexpr bool kHasZeros = kType != KvDType::kFp8E4M3;
  static constexpr uint32_t kTwoToMinus5 = 0x28002800u;
  uint32_t scale, zero;  // twice the same f16

  /// `bits`: the row's 4 bytes in the page.
  __device__ explicit RowDequantizer(uint32_t bits) {
    if constexpr (kHasZeros) {
      scale = __byte_perm(bits, 0, 0x1010u);
      zero = __byte_perm(bits, 0, 0x3232u);
    } else {
      const float raised = 32.0f * __uint_as_float(bits);
      const float limited = raised > 65504.0f ? 65504.0f : raised;  // NaN stays NaN
      scale = pack<Operand::kF16>(limited, limited);
      zero = 0;
    }
  }
  __device__ uint32_t dequantize(uint32_t pair) const {
    if constexpr (kHasZeros) return ptx::fma_rn_f16x2(pair, scale, zero);
    return ptx::mul_rn_f16x2(ptx::mul_rn_f16x2(pair, kTwoToMinus5), scale);
  }
};

/// One of four producer warps: positions [kWarpRows * w, ...) of each tile. Copies run
/// kQuantizedStages - 1 tiles ahead of the dequantization. A lane dequantizes the bytes that it
/// copied. The warp moves queries and outputs too.
template <typename Shape>
struct DequantizingProducer {
  using Rows = typename Shape::Rows;
  static constexpr int kWarpRows = Shape::kTokens / kProducerWarps;
  static constexpr int kAhead = Shape::kQuantizedStages - 1;
  // Lanes have 16-byte chunks such that the eight which store together hit all banks: the chunks of
  // a panel in some adjacent rows; then other panels, then other rows.
  static constexpr int kElements = 8 * 16 / Rows::kBits;          // of a 16-byte chunk
  static constexpr int kPanelChunks = kPanelColumns / kElements;  // 2 or 4
  static constexpr int kNearRows = 8 / kPanelChunks;              // 4 or 2
  static constexpr int kFarRows = 4 / Shape::kPanels;             // 4, 2 or 1
  static constexpr int kRowsPerPass = kNearRows * kFarRows;
  static constexpr int kPasses = kWarpRows / kRowsPerPass;
  static_assert(kPasses * 512 * kProducerWarps == Shape::kQuantizedTileBytes);

  /// A tile whose copy is in flight.
  struct Tile {
    uint32_t scale = 0;  // 4 bytes of the lane's row; 0 if it is no position
    bool is_value = false, is_first = false,
         is_none = true;  // is_first: first tile of its work tile
  };

  const PrefillParams& params;
  PrefillMemory<Shape> memory;
  RowMover<Shape> mover;
  PrefillWork work = {};
  uint32_t round = 0;
  // Copied next: keys run one tile ahead of values.
  int first_tile = 0, next_keys = 0, next_values = 0, end_tile = 0;
  int key_page = 0, value_page = 0, page_ahead = 0;
  int quantized_stage = 0;
  ptx::PipelineState key_state = {}, value_state = {};

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int warp() { return static_cast<int>(threadIdx.x % 128 / 32); }
  static __device__ int row_in_pass() {
    return lane() / (8 * Shape::kPanels) * kNearRows + lane() / kPanelChunks % kNearRows;
  }
  static __device__ int chunk() {
    return lane() / 8 % Shape::kPanels * kPanelChunks + lane() % kPanelChunks;
  }

  __device__ int token_of(int tile) const {
    return tile * Shape::kTokens + warp() * kWarpRows + lane() % kWarpRows;
  }
  __device__ int page_of(int tile) const {
    const int token = token_of(tile);
    return work.is_position(token)
               ? params.tables[work.item.table_begin + token / params.rows.page_tokens]
               : 0;
  }
  __device__ uint32_t own_quantized(int stage) const {
    return memory.quantized(stage) + warp() * kPasses * 512 + 16 * lane();
  }

  /// Issues the copies of the next tile as one cp.async group, which is empty if there is none.
  __device__ Tile start_next() {
    Tile tile;
    if (next_values == end_tile && !start_work()) {
      ptx::cp_async_commit_group();
      return tile;
    }
    tile.is_none = false;
    tile.is_first = next_keys == first_tile;
    tile.is_value = next_keys == end_tile || next_keys - next_values == 2;
    if (tile.is_value) {
      tile.scale = start_copies(next_values, value_page, true);
      value_page = key_page;
      ++next_values;
    } else {
      value_page = next_keys - next_values == 0 ? page_ahead : value_page;
      key_page = page_ahead;
      page_ahead = page_of(next_keys + 1);
      tile.scale = start_copies(next_keys, key_page, false);
      ++next_keys;
    }
    return tile;
  }

  __device__ bool start_work() {
    if (!PrefillSchedule{params}.get(round, work)) return false;
    ++round;
    const PrefillTiles<Shape> tiles(work.item);
    first_tile = next_keys = next_values = tiles.begin;
    end_tile = tiles.end;
    page_ahead = page_of(tiles.begin);
    return true;
  }

  /// Returns the scale of the lane's row.
  __device__ uint32_t start_copies(int tile, int page_index, bool is_value) {
    const int token = token_of(tile);
    const bool is_valid = work.is_position(token);
    const int slot = is_valid ? token % params.rows.page_tokens : 0;
    const int64_t row = static_cast<int64_t>(work.kv_head) * params.rows.page_tokens + slot;
    const std::byte* page = params.rows.pages + page_index * params.rows.page_bytes;
    const std::byte* own_row =
        page + row * params.rows.row_bytes + (is_value ? params.rows.value_bytes : 0);
    const std::byte* scale =
        page + params.rows.scale_bytes + 4 * row + (is_value ? params.rows.value_scale_bytes : 0);
    const uint32_t bits = is_valid ? *reinterpret_cast<const uint32_t*>(scale) : 0;
    if (params.rows.copy_bytes == 16) {
      copy_rows<16>(own_row, is_valid);
    } else if (params.rows.copy_bytes == 8) {
      copy_rows<8>(own_row, is_valid);
    } else {
      copy_rows<4>(own_row, is_valid);
    }
    ptx::cp_async_commit_group();
    if (++quantized_stage == Shape::kQuantizedStages) quantized_stage = 0;
    return bits;
  }

  template <int kBytes>
  __device__ void copy_rows(const std::byte* own_row, bool own_is_valid) const {
    const uint32_t valid = __ballot_sync(0xFFFFFFFFu, own_is_valid);
    const uint32_t to = own_quantized(quantized_stage);
    const int byte = 16 * chunk();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = pass * kRowsPerPass + row_in_pass();
      const auto address = __shfl_sync(
          0xFFFFFFFFu, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(own_row)), row);
      const auto* from = reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(address)) + byte;
      // 16 bytes of a row, fewer where the row ends before.
#pragma unroll
      for (int i = 0; i < 16; i += kBytes) {
        if (byte + i >= params.rows.row_bytes) continue;
        cp_async<kBytes>(to + 512 * pass + i, from + i, (valid >> row & 1u) != 0);
      }
    }
  }

  /// Dequantizes a tile that has arrived to the next pipeline stage.
  __device__ void dequantize(const Tile& tile, int stage) {
    if (tile.is_value) {
      mbarrier_wait(memory.empty_values(value_state.index), value_state.parity ^ 1u);
      dequantize_rows(tile.scale, stage, memory.values(value_state.index));
      ptx::mbarrier_arrive(memory.full_values(value_state.index));
      value_state.advance(Shape::kStages);
    } else {
      mbarrier_wait(memory.empty_keys(key_state.index), key_state.parity ^ 1u);
      dequantize_rows(tile.scale, stage, memory.keys(key_state.index));
      ptx::mbarrier_arrive(memory.full_keys(key_state.index));
      key_state.advance(Shape::kStages);
    }
  }

  __device__ void dequantize_rows(uint32_t own_scale, int stage, uint32_t to) const {
    __syncwarp();
    constexpr int kAtOnce = min_of(kPasses, 4);
    for (int begin = 0; begin < kPasses; begin += kAtOnce) {
      Words<16> packed[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        packed[i] = Words<16>::load_shared(own_quantized(stage) + 512 * (begin + i));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = (begin + i) * kRowsPerPass + row_in_pass();
        dequantize_chunk(packed[i],
                         RowDequantizer<Shape::kDType>(__shfl_sync(0xFFFFFFFFu, own_scale, row)),
                         row, to);
      }
    }
    ptx::fence_proxy_async_shared();
  }

  __device__ static void dequantize_chunk(const Words<16>& packed,
                                          const RowDequantizer<Shape::kDType>& scale, int row,
                                          uint32_t to) {
    uint32_t pairs[kElements / 2];
    to_f16_pairs<Shape::kDType>(packed, pairs);
#pragma unroll
    for (int i = 0; i < kElements / 8; ++i) {
      const int byte = 2 * (chunk() * kElements + 8 * i);
      ptx::st_shared_b32x4(
          to + panel_offset(Shape::kPanels, warp() * kWarpRows + row, byte),
          make_uint4(scale.dequantize(pairs[4 * i]), scale.dequantize(pairs[4 * i + 1]),
                     scale.dequantize(pairs[4 * i + 2]), scale.dequantize(pairs[4 * i + 3])));
    }
  }

  __device__ void run() {
    if (params.rows.head_dim < Shape::kPaddedHeadDim) {  // copies leave padding columns out
      for (int stage = 0; stage < Shape::kQuantizedStages; ++stage) {
        for (int pass = 0; pass < kPasses; ++pass) {
          ptx::st_shared_b32x4(own_quantized(stage) + 512 * pass, make_uint4(0, 0, 0, 0));
        }
      }
    }
    Tile tiles[kAhead + 1];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) tiles[i] = start_next();
    for (int stage = 0;; stage = stage + 1 == Shape::kQuantizedStages ? 0 : stage + 1) {
      tiles[kAhead] = start_next();
      if (tiles[0].is_none) break;
      if (tiles[0].is_first) mover.next();
      ptx::cp_async_wait_group<kAhead>();
      dequantize(tiles[0], stage);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) tiles[i] = tiles[i + 1];
    }
    mover.next();  // there is no more work
    mover.finish();
  }
};

}  // namespace halley::attention
