// Producer of the prefill kernel for caches of fp8, int8 and int4: codes to shared memory as they
// are, and from there, as the f16 of the numbers that they stand for, to where the tensor cores
// read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/prefill_mover.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/attention/wgmma_instructions.cuh"

namespace halley::attention {

/// 16 bytes of codes to the f16 of the same integers (or e4m3 numbers), in natural order.
template <KvDType kType, int kWords>
__device__ inline void decode_codes(const Words<16>& codes, uint32_t (&pairs)[kWords]) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    if constexpr (kType == KvDType::kInt4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // elements i and i + 4 of the word's eight
        const uint32_t both = codes.words[word] >> (8 * half);
        const uint32_t low = low_nibbles(both), high = high_nibbles(both);
        pairs[4 * word + half] = permute_bytes(low, high, 0x5410u);
        pairs[4 * word + half + 2] = permute_bytes(low, high, 0x7632u);
      }
    } else {
      pairs[2 * word] = bytes_to_f16x2<kType, false>(codes.words[word]);
      pairs[2 * word + 1] = bytes_to_f16x2<kType, true>(codes.words[word]);
    }
  }
}

/// From codes to numbers: code * scale + zero, or code * 2^-5 * (scale * 2^5) for e4m3, whose
/// scales are f32: so it is precise in f16 for rows of magnitudes from 2^-10 to the greatest f16.
template <KvDType kType>
struct CodeScale {
  static constexpr bool kHasZeros = kType != KvDType::kFp8E4M3;
  static constexpr uint32_t kTwoToMinus5 = 0x28002800u;
  uint32_t scale, zero;  // twice the same f16

  /// From the row's 4 bytes in the page.
  __device__ explicit CodeScale(uint32_t bits) {
    if constexpr (kHasZeros) {
      scale = permute_bytes(bits, 0, 0x1010u);
      zero = permute_bytes(bits, 0, 0x3232u);
    } else {
      const float raised = 32.0f * __uint_as_float(bits);
      const float limited = raised > 65504.0f ? 65504.0f : raised;  // not a number stays
      scale = pack<Operand::kF16>(limited, limited);
      zero = 0;
    }
  }
  __device__ uint32_t number(uint32_t code) const {
    if constexpr (kHasZeros) return fma_f16x2(code, scale, zero);
    return product_of_pairs(product_of_pairs(code, kTwoToMinus5), scale);
  }
};

/// One of four warps: positions [kWarpRows * w, ...) of each tile. Copies are kCodeStages - 1 tiles
/// ahead of what is decoded. A lane decodes what it copied itself. Queries and outputs are moved
/// here too.
template <typename Shape>
struct DecodingProducer {
  using Rows = typename Shape::Rows;
  static constexpr int kWarpRows = Shape::kTokens / kProducerWarps;
  static constexpr int kAhead = Shape::kCodeStages - 1;
  // Lanes have chunks of 16 bytes such that the eight which store at a time meet all banks: the
  // chunks of a panel, of some neighbouring rows; then other panels, then other rows.
  static constexpr int kNumbers = 8 * 16 / Rows::kBits;          // of a chunk
  static constexpr int kPanelChunks = kPanelColumns / kNumbers;  // 2 or 4
  static constexpr int kNearRows = 8 / kPanelChunks;             // 4 or 2
  static constexpr int kFarRows = 4 / Shape::kPanels;            // 4, 2 or 1
  static constexpr int kRowsPerPass = kNearRows * kFarRows;
  static constexpr int kPasses = kWarpRows / kRowsPerPass;
  static_assert(kPasses * 512 * kProducerWarps == Shape::kCodeTileBytes);

  /// A tile that is being copied.
  struct Tile {
    uint32_t scale = 0;  // 4 bytes of the lane's row; 0 where it is no position
    bool is_value = false, is_first = false, is_none = true;  // first: of its work
  };

  const PrefillParams& params;
  PrefillMemory<Shape> memory;
  RowMover<Shape> mover;
  PrefillWork work = {};
  uint32_t turn = 0;
  // What is copied next: keys are one tile ahead of values.
  int first_tile = 0, next_keys = 0, next_values = 0, end_tile = 0;
  int page_of_keys = 0, page_of_values = 0, page_ahead = 0;
  int code_stage = 0;
  RingPlace<Shape::kStages> place_of_keys = {}, place_of_values = {};

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
  __device__ uint32_t own_codes(int stage) const {
    return memory.codes(stage) + warp() * kPasses * 512 + 16 * lane();
  }

  /// Starts copies of the next tile as a group, which is empty where there is none.
  __device__ Tile start_next() {
    Tile tile;
    if (next_values == end_tile && !start_work()) {
      close_copy_group();
      return tile;
    }
    tile.is_none = false;
    tile.is_first = next_keys == first_tile;
    tile.is_value = next_keys == end_tile || next_keys - next_values == 2;
    if (tile.is_value) {
      tile.scale = start_copies(next_values, page_of_values, true);
      page_of_values = page_of_keys;
      ++next_values;
    } else {
      page_of_values = next_keys - next_values == 0 ? page_ahead : page_of_values;
      page_of_keys = page_ahead;
      page_ahead = page_of(next_keys + 1);
      tile.scale = start_copies(next_keys, page_of_keys, false);
      ++next_keys;
    }
    return tile;
  }

  __device__ bool start_work() {
    if (!PrefillTurns{params}.get(turn, work)) return false;
    ++turn;
    const PrefillTiles<Shape> tiles(work.item);
    first_tile = next_keys = next_values = tiles.begin;
    end_tile = tiles.end;
    page_ahead = page_of(tiles.begin);
    return true;
  }

  /// Gives back the scale of the lane's row.
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
    close_copy_group();
    if (++code_stage == Shape::kCodeStages) code_stage = 0;
    return bits;
  }

  template <int kBytes>
  __device__ void copy_rows(const std::byte* own_row, bool own_is_valid) const {
    const uint32_t valid = __ballot_sync(0xFFFFFFFFu, own_is_valid);
    const uint32_t to = own_codes(code_stage);
    const int byte = 16 * chunk();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = pass * kRowsPerPass + row_in_pass();
      const auto address = __shfl_sync(
          0xFFFFFFFFu, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(own_row)), row);
      const auto* from = reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(address)) + byte;
      // 16 bytes of a row, less where the row ends before.
#pragma unroll
      for (int i = 0; i < 16; i += kBytes) {
        if (byte + i >= params.rows.row_bytes) continue;
        start_copy<kBytes>(to + 512 * pass + i, from + i, (valid >> row & 1u) != 0);
      }
    }
  }

  /// Decodes a tile whose codes are there, to the ring's next place.
  __device__ void decode(const Tile& tile, int stage) {
    if (tile.is_value) {
      wait_for_barrier(memory.empty_values(place_of_values.stage), place_of_values.parity ^ 1u);
      decode_rows(tile.scale, stage, memory.values(place_of_values.stage));
      arrive(memory.full_values(place_of_values.stage));
      place_of_values.advance();
    } else {
      wait_for_barrier(memory.empty_keys(place_of_keys.stage), place_of_keys.parity ^ 1u);
      decode_rows(tile.scale, stage, memory.keys(place_of_keys.stage));
      arrive(memory.full_keys(place_of_keys.stage));
      place_of_keys.advance();
    }
  }

  __device__ void decode_rows(uint32_t own_scale, int stage, uint32_t to) const {
    __syncwarp();
    constexpr int kAtOnce = min_of(kPasses, 4);
    for (int begin = 0; begin < kPasses; begin += kAtOnce) {
      Words<16> codes[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        codes[i] = Words<16>::load_shared(own_codes(stage) + 512 * (begin + i));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = (begin + i) * kRowsPerPass + row_in_pass();
        decode_chunk(codes[i], CodeScale<Shape::kDType>(__shfl_sync(0xFFFFFFFFu, own_scale, row)),
                     row, to);
      }
    }
    fence_shared_for_async();
  }

  __device__ static void decode_chunk(const Words<16>& codes, const CodeScale<Shape::kDType>& scale,
                                      int row, uint32_t to) {
    uint32_t pairs[kNumbers / 2];
    decode_codes<Shape::kDType>(codes, pairs);
#pragma unroll
    for (int i = 0; i < kNumbers / 8; ++i) {
      const int byte = 2 * (chunk() * kNumbers + 8 * i);
      store_shared_quad(to + panel_offset(Shape::kPanels, warp() * kWarpRows + row, byte),
                        make_uint4(scale.number(pairs[4 * i]), scale.number(pairs[4 * i + 1]),
                                   scale.number(pairs[4 * i + 2]), scale.number(pairs[4 * i + 3])));
    }
  }

  __device__ void run() {
    if (params.rows.head_dim < Shape::kPaddedHeadDim) {  // copies leave out what rows do not have
      for (int stage = 0; stage < Shape::kCodeStages; ++stage) {
        for (int pass = 0; pass < kPasses; ++pass) {
          store_shared_quad(own_codes(stage) + 512 * pass, make_uint4(0, 0, 0, 0));
        }
      }
    }
    Tile tiles[kAhead + 1];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) tiles[i] = start_next();
    for (int stage = 0;; stage = stage + 1 == Shape::kCodeStages ? 0 : stage + 1) {
      tiles[kAhead] = start_next();
      if (tiles[0].is_none) break;
      if (tiles[0].is_first) mover.next();
      wait_for_copies<kAhead>();
      decode(tiles[0], stage);
#pragma unroll
      for (int i = 0; i < kAhead; ++i) tiles[i] = tiles[i + 1];
    }
    mover.next();  // there is no more work
    mover.finish();
  }
};

}  // namespace halley::attention
