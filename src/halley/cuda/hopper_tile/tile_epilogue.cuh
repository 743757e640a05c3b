// From the sums of a tile to rows of Y: parts of several blocks added, bias, rounding.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_ring.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cluster.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::cuda {

/// One thread's sums of its warpgroup's 64 outputs. Element 4 j + e is output row() + 8 * (e / 2)
/// of the warp's 16, token 8 j + 2 * column_pair() + e % 2.
template <int kTokens>
using TileSums = float[kTokens / 2];

/// Where a block's tile lies in Y.
struct TilePlace {
  int tile = 0;
  int token = 0;        // the tile's first
  int output = 0;       // the warpgroup's first
  int tokens_left = 0;  // tokens of Y from the tile's first on
};

/// Of one segment's tile.
template <int kTokens>
__device__ __forceinline__ TilePlace tile_place(const TileArguments& args, const TileThread& self,
                                                int tile) {
  TilePlace place;
  place.tile = tile;
  place.token = tile % args.token_tiles * kTokens;
  place.output = tile / args.token_tiles * kTileOutputs + self.warpgroup * (kTileOutputs / 2);
  place.tokens_left = args.M - place.token;
  return place;
}

template <int kTokens>
struct TileEpilogue {
  using Sums = TileSums<kTokens>;
  static constexpr int kVectors = kTokens / 8;
  /// Parts are read as many vectors at a time as registers hold: of small tiles fewer.
  static constexpr int kHeld = kTokens > 64 ? 16 : 8;
  static constexpr int kPieces = kVectors < kHeld ? kVectors : kHeld;

  static __device__ __forceinline__ float4* slot_of(const TileArguments& args,
                                                    const TileThread& self, int slot) {
    return static_cast<float4*>(args.partials) +
           static_cast<int64_t>(slot) * (kVectors * kTileConsumers) + self.thread;
  }

  /// Of a shared tile and a warpgroup: how many blocks have left their parts.
  static __device__ __forceinline__ uint32_t* counter_of(const TileArguments& args,
                                                         const TileThread& self,
                                                         const TilePlace& place) {
    return args.counters + 2 * (place.tile - args.schedule.whole_tiles) + self.warpgroup;
  }

  /// Leaves the sums in a slot, and counts the warpgroup's part.
  static __device__ __forceinline__ void leave_part(const TileThread& self, const TilePlace& place,
                                                    const Sums& sums, float4* mine,
                                                    uint32_t* counter) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (8 * v < place.tokens_left) {
        __stcg(mine + v * kTileConsumers,
               float4{sums[4 * v], sums[4 * v + 1], sums[4 * v + 2], sums[4 * v + 3]});
      }
    }
    // The barriers order the warpgroup's stores and loads before and behind one thread's.
    ptx::bar_sync<128>(1 + self.warpgroup);
    if (self.in_warpgroup == 0) ptx::atom_add_acq_rel_gpu(counter, 1);
  }

  /// Adds what other blocks have of this tile, in their order: the first one has its part in
  /// registers, and it comes to this tile last of all that it does, when most others have long left
  /// theirs. False: the block is another one, and has left its part.
  static __device__ __forceinline__ bool add_parts(const TileArguments& args,
                                                   const TileBlock& block, const TileThread& self,
                                                   const TilePlace& place, Sums& sums) {
    const TileSharers sharers = sharers_of(args.schedule, place.tile);
    uint32_t* counter = counter_of(args, self, place);
    if (block.index != sharers.first) {
      const int slot = partial_slot(args.schedule, place.tile, block.index);
      leave_part(self, place, sums, slot_of(args, self, slot), counter);
      return false;
    }
    if (sharers.count > 1) {
      if (self.in_warpgroup == 0) {
        // They never wait for this block before they leave their parts.
        while (ptx::ld_acquire_gpu(counter) + 1 != static_cast<uint32_t>(sharers.count)) {
        }
        *counter = 0;  // for the next launch
      }
      ptx::bar_sync<128>(1 + self.warpgroup);
      sum_parts(args, self, place, sharers, sums);
    }
    return true;
  }

  static __device__ __forceinline__ void sum_parts(const TileArguments& args,
                                                   const TileThread& self, const TilePlace& place,
                                                   const TileSharers& sharers, Sums& sums) {
#pragma unroll 1
    for (int part = 1; part < sharers.count; ++part) {
      const float4* from =
          slot_of(args, self, partial_slot(args.schedule, place.tile, sharers.first + part));
#pragma unroll
      for (int begin = 0; begin < kVectors; begin += kPieces) {
        float4 parts[kPieces];
#pragma unroll
        for (int v = 0; v < kPieces; ++v) {
          const bool is_there = 8 * (begin + v) < place.tokens_left;
          parts[v] = is_there ? __ldcg(from + (begin + v) * kTileConsumers) : float4{0, 0, 0, 0};
        }
#pragma unroll
        for (int v = 0; v < kPieces; ++v) {
          float* to = &sums[4 * (begin + v)];
          to[0] += parts[v].x;
          to[1] += parts[v].y;
          to[2] += parts[v].z;
          to[3] += parts[v].w;
        }
      }
    }
  }

  /// Of the thread's two outputs.
  struct Bias {
    float of[2];
  };
  static __device__ __forceinline__ Bias load_bias(const TileArguments& args,
                                                   const TileThread& self, const TilePlace& place) {
    Bias bias;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const int n = place.output + self.warp * 16 + self.row() + u * 8;
      bias.of[u] = n < args.N && args.bias != nullptr ? args.bias[n] : 0.0f;
    }
    return bias;
  }

  /// One number of the tile, where Y has it.
  static __device__ __forceinline__ void write_one(const TileArguments& args,
                                                   const TileThread& self, const TilePlace& place,
                                                   int token, int upper, float value) {
    const int n = place.output + self.warp * 16 + self.row() + upper * 8;
    if (token >= place.tokens_left || n >= args.N) return;
    static_cast<float*>(args.y)[(place.token + token) * args.y_stride + n] = value;
  }

  /// f32: eight lanes write 32 consecutive bytes of a row.
  static __device__ __forceinline__ void write_f32(const TileArguments& args,
                                                   const TileThread& self, const TilePlace& place,
                                                   const Bias& bias, const Sums& sums) {
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      const int upper = i % 4 / 2;
      write_one(args, self, place, i / 4 * 8 + 2 * self.column_pair() + i % 2, upper,
                sums[i] + bias.of[upper]);
    }
  }

  /// f16 and bf16: turned to rows in shared memory, then 16 bytes at a time.
  static __device__ __forceinline__ void write_16_bits(const TileArguments& args,
                                                       const TileRing& ring, const TileThread& self,
                                                       const TilePlace& place, const Bias& bias,
                                                       const Sums& sums) {
    constexpr int kStaged = staged_tile_tokens(kTokens);
    const uint32_t staging =
        ring.base +
        static_cast<uint32_t>(args.shared.staging + self.warpgroup * kStaged * kTilePitch);
#pragma unroll
    for (int begin = 0; begin < kTokens; begin += kStaged) {
      if (begin >= place.tokens_left) break;
      ptx::bar_sync<128>(1 + self.warpgroup);  // rows before have been read
#pragma unroll
      for (int token = 0; token < kStaged; token += 16) {
        stage_pair(args, self, staging, token, bias, &sums[(begin + token) / 2]);
      }
      ptx::bar_sync<128>(1 + self.warpgroup);
      write_rows(args, self, place, staging, begin, min(kStaged, place.tokens_left - begin));
    }
  }

  static __device__ __forceinline__ void write_rows(const TileArguments& args,
                                                    const TileThread& self, const TilePlace& place,
                                                    uint32_t staging, int begin, int num_tokens) {
    constexpr int kRowVectors = kTileOutputs / 2 / 8;
    for (int index = self.in_warpgroup; index < num_tokens * kRowVectors; index += 128) {
      const int token = index / kRowVectors, column = index % kRowVectors * 8;
      const uint4 values =
          ptx::ld_shared_b32x4(staging + static_cast<uint32_t>(token * kTilePitch + column * 2));
      const int n = place.output + column;
      uint16_t* to =
          static_cast<uint16_t*>(args.y) + (place.token + begin + token) * args.y_stride + n;
      if (args.has_wide_rows && n + 8 <= args.N) {
        *reinterpret_cast<uint4*>(to) = values;
      } else {
        const uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (n + i < args.N) to[i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
        }
      }
    }
  }

  /// Eight values of the thread, of two groups of eight tokens, to staged rows: `token` is the
  /// staged one of the first.
  static __device__ __forceinline__ void stage_pair(const TileArguments& args,
                                                    const TileThread& self, uint32_t staging,
                                                    int token, const Bias& bias,
                                                    const float* values) {
    const bool is_bf16 = args.y_dtype == DType::kBf16;
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = values[2 * i] + bias.of[i % 2], high = values[2 * i + 1] + bias.of[i % 2];
      const uint32_t f16 = ptx::cvt_rn_f16x2_f32(low, high),
                     bf16 = ptx::cvt_rn_bf16x2_f32(low, high);
      pairs[i] = is_bf16 ? bf16 : f16;
    }
    // Lane l names token l % 8 of the matrix l / 8: matrices are both halves of 16 outputs, of
    // eight tokens, then of the next eight.
    const int row = token + self.lane / 16 * 8 + self.lane % 8;
    const int output = self.warp * 16 + self.lane / 8 % 2 * 8;
    ptx::stmatrix_x4_trans(staging + static_cast<uint32_t>(row * kTilePitch + output * 2), pairs);
  }

  /// Pairs of groups of eight tokens: what the blocks that split a tile's inputs divide its sums
  /// by.
  static constexpr int kPairs = kTokens / 16;
  static constexpr int kPairBytes = kTileConsumers * 8 * 4;

  /// Adds what the blocks of the cluster have of one tile: each adds, and writes, some tokens.
  /// Parts are added in their order. All consumers; other threads sync_threads_of_cluster() twice.
  static __device__ __forceinline__ void finish_split(const TileArguments& args,
                                                      const TileBlock& block,
                                                      const TileThread& self,
                                                      const TilePlace& place, const Sums& sums) {
    const int pairs_each = (kPairs + args.split - 1) / args.split;
    sync_threads_of_cluster();  // nobody needs the rings any more
    const uint32_t mine =
        block.ring.base +
        static_cast<uint32_t>(block.part * pairs_each * kPairBytes + self.thread * 16);
    uint32_t owner = 0;
    int local = 0;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (16 * pair < place.tokens_left) {
        const uint32_t to = mine + static_cast<uint32_t>(local * kPairBytes);
        ptx::st_shared_cluster_x4(ptx::mapa(to, owner), &sums[8 * pair]);
        ptx::st_shared_cluster_x4(ptx::mapa(to + kPairBytes / 2, owner), &sums[8 * pair + 4]);
      }
      if (++local == pairs_each) {
        local = 0;
        ++owner;
      }
    }
    sync_threads_of_cluster();
    write_split(args, block, self, place, pairs_each);
  }

  /// The sum over all parts of the block's pair `local`.
  static __device__ __forceinline__ void add_split(const TileArguments& args,
                                                   const TileBlock& block, const TileThread& self,
                                                   int pairs_each, int local, float (&values)[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = 0;
    for (int part = 0; part < args.split; ++part) {
      const uint32_t from =
          block.ring.base +
          static_cast<uint32_t>((part * pairs_each + local) * kPairBytes + self.thread * 16);
      const uint4 first = ptx::ld_shared_b32x4(from),
                  second = ptx::ld_shared_b32x4(from + kPairBytes / 2);
      const uint32_t words[8] = {first.x,  first.y,  first.z,  first.w,
                                 second.x, second.y, second.z, second.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] += __uint_as_float(words[i]);
    }
  }

  /// Tokens of the tile: multiples of 16 but for the tile's end.
  struct TokenRange {
    int begin = 0;
    int end = 0;
  };

  /// Rows of Y of some tokens.
  /// sum_of(pair, values) gives sums of kPieces pairs of groups of eight tokens.
  template <int kPieces, typename SumOf>
  static __device__ __forceinline__ void write_sums(const TileArguments& args, const TileRing& ring,
                                                    const TileThread& self, const TilePlace& place,
                                                    const TokenRange& tokens, const SumOf& sum_of) {
    constexpr int kStaged = staged_tile_tokens(kTokens);
    const uint32_t staging =
        ring.base +
        static_cast<uint32_t>(args.shared.staging + self.warpgroup * kStaged * kTilePitch);
    const Bias bias = load_bias(args, self, place);
    for (int begin = tokens.begin; begin < tokens.end; begin += kStaged) {
      const int num_tokens = min(kStaged, tokens.end - begin);
      ptx::bar_sync<128>(1 + self.warpgroup);  // rows before have been read
      for (int first = 0; first < num_tokens; first += 16 * kPieces) {
        float values[kPieces][8];
        sum_of((begin + first) / 16, values);
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          const int token = first + 16 * piece;
          if (token >= num_tokens) break;
          if (args.y_dtype != DType::kF32) {
            stage_pair(args, self, staging, token, bias, values[piece]);
            continue;
          }
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            write_one(args, self, place, begin + token + i / 4 * 8 + 2 * self.column_pair() + i % 2,
                      i % 4 / 2, values[piece][i] + bias.of[i % 4 / 2]);
          }
        }
      }
      if (args.y_dtype == DType::kF32) continue;
      ptx::bar_sync<128>(1 + self.warpgroup);
      write_rows(args, self, place, staging, begin, num_tokens);
    }
  }

  static __device__ __forceinline__ void write_split(const TileArguments& args,
                                                     const TileBlock& block, const TileThread& self,
                                                     const TilePlace& place, int pairs_each) {
    const int first = block.part * pairs_each;
    const int end = min(min((first + pairs_each) * 16, kTokens), place.tokens_left);
    write_sums<1>(args, block.ring, self, place, {first * 16, end},
                  [&](int pair, float(&values)[1][8]) {
                    add_split(args, block, self, pairs_each, pair - first, values[0]);
                  });
  }

  /// Pairs whose parts are read at a time, and parts.
  static constexpr int kPairPieces = kTokens == 128 ? 2 : 1;
  static constexpr int kPartPieces = 4;

  /// The end of a tile that is cut into parts: all of its blocks come to it at about the same time,
  /// leave their sums in the L2 cache, and add and write some tokens each.
  static __device__ __forceinline__ void finish_parts(const TileArguments& args,
                                                      const TileBlock& block,
                                                      const TileThread& self,
                                                      const TilePlace& place, const Sums& sums) {
    const int parts = args.schedule.parts, part = block.index % parts;
    const int pairs = min(kPairs, (place.tokens_left + 15) / 16);
    const int pairs_each = (pairs + parts - 1) / parts;
    const int writers = (pairs + pairs_each - 1) / pairs_each;
    uint32_t* counter = counter_of(args, self, place);
    leave_part(self, place, sums, slot_of(args, self, block.index), counter);
    if (part >= writers) return;
    if (self.in_warpgroup == 0) {
      while (ptx::ld_acquire_gpu(counter) < static_cast<uint32_t>(parts)) {
      }
      // The last one that has seen it leaves zero for the next launch.
      if (ptx::atom_add_acq_rel_gpu(counter, 1) + 1 == static_cast<uint32_t>(parts + writers))
        *counter = 0;
    }
    ptx::bar_sync<128>(1 + self.warpgroup);
    const int begin = part * pairs_each * 16;
    const int end = min(min(begin + pairs_each * 16, kTokens), place.tokens_left);
    write_sums<kPairPieces>(args, block.ring, self, place, {begin, end},
                            [&](int pair, float(&values)[kPairPieces][8]) {
                              add_left(args, self, place, block.index - part, pair, values);
                            });
  }

  /// The sums over all parts, of which block `first` has left the first one.
  static __device__ __forceinline__ void add_left(const TileArguments& args, const TileThread& self,
                                                  const TilePlace& place, int first, int pair,
                                                  float (&values)[kPairPieces][8]) {
#pragma unroll
    for (int piece = 0; piece < kPairPieces; ++piece) {
#pragma unroll
      for (int i = 0; i < 8; ++i) values[piece][i] = 0;
    }
#pragma unroll 1
    for (int begin = 0; begin < args.schedule.parts; begin += kPartPieces) {
      float4 left[kPartPieces][2 * kPairPieces];
#pragma unroll
      for (int part = 0; part < kPartPieces; ++part) {
        const float4* from = slot_of(args, self, first + begin + part);
#pragma unroll
        for (int i = 0; i < 2 * kPairPieces; ++i) {
          const int vector = 2 * pair + i;
          const bool is_there =
              begin + part < args.schedule.parts && 8 * vector < min(place.tokens_left, kTokens);
          left[part][i] = is_there ? __ldcg(from + vector * kTileConsumers) : float4{0, 0, 0, 0};
        }
      }
#pragma unroll
      for (int part = 0; part < kPartPieces; ++part) {
#pragma unroll
        for (int i = 0; i < 2 * kPairPieces; ++i) {
          float* to = &values[i / 2][i % 2 * 4];
          to[0] += left[part][i].x;
          to[1] += left[part][i].y;
          to[2] += left[part][i].z;
          to[3] += left[part][i].w;
        }
      }
    }
  }

  /// The end of a segment: rows of Y, or a part of them for whoever comes last.
  static __device__ __forceinline__ void finish(const TileArguments& args, const TileBlock& block,
                                                const TileThread& self, const TilePlace& place,
                                                bool is_whole, Sums& sums) {
    if (args.split > 1) return finish_split(args, block, self, place, sums);
    if (!is_whole && args.schedule.parts > 0) return finish_parts(args, block, self, place, sums);
    if (!is_whole && !add_parts(args, block, self, place, sums)) {
      return;
    }
    const Bias bias = load_bias(args, self, place);
    if (args.y_dtype == DType::kF32) {
      write_f32(args, self, place, bias, sums);
    } else {
      write_16_bits(args, block.ring, self, place, bias, sums);
    }
  }
};

}  // namespace halley::cuda
