// The bf16 panel kernel on the AVX512-BF16 dot product: x and W in bf16, accumulators in f32.
// Highway 1.0 has no operation for it. Subnormal values count as zero: that is how the instruction
// works.
#include "halley/base/check.h"
#include "halley/kernels/gemm/panel_kernel.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

namespace halley::panel_gemm {
namespace {

#define HALLEY_UNROLL _Pragma("GCC unroll 32")
#define HALLEY_INLINE inline __attribute__((always_inline))

// 14 rows times the 2 vectors of a panel: 28 accumulators, 2 vectors of weights, a broadcast.
constexpr int kTileRows = 14;
constexpr int kVecs = 2;
constexpr int kLanes = 16;
static_assert(kVecs * kLanes == kPanelRows);

struct TileOutput {
  float* y;
  int64_t y_stride;
  const float* bias;  // or null
  bool is_first;
};

// Prefetch distance where panels are streamed: no hardware prefetcher looks beyond the end of a
// page.
constexpr int64_t kAheadBytes = 8192;

// The step from one pair of k to the next, and from one row to the next, in pairs.
struct XSteps {
  int64_t k;
  int64_t row;
};

template <int kRows, bool kIsStreaming>
HALLEY_INLINE void multiply_tile(const uint32_t* x, XSteps steps, const std::byte* w,
                                 int64_t num_pairs, const TileOutput& out) {
  __m512 acc[kRows][kVecs];
  HALLEY_UNROLL for (int row = 0; row < kRows; ++row) {
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      acc[row][v] = out.is_first ? _mm512_setzero_ps()
                                 : _mm512_loadu_ps(out.y + row * out.y_stride + v * kLanes);
    }
  }
  for (int64_t pair = 0; pair < num_pairs; ++pair, w += kPanelRows * 4, x += steps.k) {
    if constexpr (kIsStreaming) {
      __builtin_prefetch(w + kAheadBytes);
      __builtin_prefetch(w + kAheadBytes + 64);
    }
    const auto w0 = reinterpret_cast<__m512bh>(_mm512_load_si512(w));
    const auto w1 = reinterpret_cast<__m512bh>(_mm512_load_si512(w + 64));
    HALLEY_UNROLL for (int row = 0; row < kRows; ++row) {
      const auto factor =
          reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(x[row * steps.row])));
      acc[row][0] = _mm512_dpbf16_ps(acc[row][0], w0, factor);
      acc[row][1] = _mm512_dpbf16_ps(acc[row][1], w1, factor);
    }
  }
  HALLEY_UNROLL for (int row = 0; row < kRows; ++row) {
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      __m512 sum = acc[row][v];
      if (out.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_loadu_ps(out.bias + v * kLanes));
      _mm512_storeu_ps(out.y + row * out.y_stride + v * kLanes, sum);
    }
  }
}

template <int kRows>
void multiply_tiled(const uint32_t* x, int64_t, const std::byte* w, int64_t num_pairs,
                    const TileOutput& out) {
  multiply_tile<kRows, false>(x, {kRows, 1}, w, num_pairs, out);
}

template <int kRows>
void multiply_rows(const uint32_t* x, int64_t row_stride, const std::byte* w, int64_t num_pairs,
                   const TileOutput& out) {
  multiply_tile<kRows, true>(x, {1, row_stride}, w, num_pairs, out);
}

using MultiplyTile = void (*)(const uint32_t* x, int64_t row_stride, const std::byte* w,
                              int64_t num_pairs, const TileOutput& out);
constexpr MultiplyTile kMultiplyTiled[kTileRows] = {
    multiply_tiled<1>,  multiply_tiled<2>,  multiply_tiled<3>,  multiply_tiled<4>,
    multiply_tiled<5>,  multiply_tiled<6>,  multiply_tiled<7>,  multiply_tiled<8>,
    multiply_tiled<9>,  multiply_tiled<10>, multiply_tiled<11>, multiply_tiled<12>,
    multiply_tiled<13>, multiply_tiled<14>};
constexpr MultiplyTile kMultiplyRows[kTileRows] = {
    multiply_rows<1>,  multiply_rows<2>,  multiply_rows<3>,  multiply_rows<4>, multiply_rows<5>,
    multiply_rows<6>,  multiply_rows<7>,  multiply_rows<8>,  multiply_rows<9>, multiply_rows<10>,
    multiply_rows<11>, multiply_rows<12>, multiply_rows<13>, multiply_rows<14>};

// Sixteen f32 to bf16, rounded to nearest even. The conversion instruction would take subnormal
// values for zero; the dot product does so anyway.
HALLEY_INLINE void round_16(const float* from, uint16_t* to) {
  const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(from)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);
}

// The pairs k, k+1 of one row for k in [k_begin, k_begin + 2 * num_pairs), zero beyond K.
constexpr int64_t kPairsAtOnce = 64;
void round_pairs(const float* x, int64_t K, int64_t k_begin, uint16_t* out) {
  const int64_t num_k = std::min(2 * kPairsAtOnce, K - k_begin);
  int64_t k = 0;
  for (; k + 16 <= num_k; k += 16) round_16(x + k_begin + k, out + k);
  if (k == num_k) return;
  alignas(64) float tail[16] = {};
  std::memcpy(tail, x + k_begin + k, static_cast<size_t>(num_k - k) * sizeof(float));
  round_16(tail, out + k);
}

void pack_tile(const float* x, int64_t row_stride, int64_t num_rows, int64_t num_k,
               uint32_t* words) {
  const int64_t num_pairs = (num_k + 1) / 2;
  uint16_t rounded[2 * kPairsAtOnce];
  for (int64_t begin = 0; begin < num_pairs; begin += kPairsAtOnce) {
    const int64_t count = std::min(kPairsAtOnce, num_pairs - begin);
    for (int64_t row = 0; row < num_rows; ++row) {
      round_pairs(x + row * row_stride, num_k, 2 * begin, rounded);
      uint32_t* to = words + begin * num_rows + row;
      if (num_rows == 1) {
        std::memcpy(to, rounded, static_cast<size_t>(count) * 4);
        continue;
      }
      for (int64_t i = 0; i < count; ++i, to += num_rows) std::memcpy(to, rounded + 2 * i, 4);
    }
  }
}

const std::byte* at_k(const std::byte* panel, int64_t k) { return panel + k / 2 * kPanelRows * 4; }

const std::byte* prepare_block(const Panel& panel, int64_t k_begin, int64_t, std::byte*) {
  return at_k(panel.data, k_begin);
}

void multiply_block(const Block& block) {
  const int64_t num_pairs = (block.k_end - block.k_begin + 1) / 2;
  const int64_t row_begin = block.tiles.begin(block.tile_begin);
  for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
    const int64_t begin = block.tiles.begin(tile);
    const int64_t num_rows = block.tiles.begin(tile + 1) - begin;
    const uint32_t* x =
        block.x.words + block.k_begin / 2 * block.tiles.num_rows + begin * num_pairs;
    const TileOutput out{block.y + (begin - row_begin) * block.y_stride, block.y_stride, block.bias,
                         block.k_begin == 0};
    prefetch_ahead(block, tile - block.tile_begin, block.tile_end - block.tile_begin);
    kMultiplyTiled[num_rows - 1](x, 0, block.w, num_pairs, out);
  }
}

void multiply_direct(const Block& block) {
  const int64_t num_pairs = (block.k_end - block.k_begin + 1) / 2;
  const std::byte* w = at_k(block.panel.data, block.k_begin);
  for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
    const int64_t begin = block.tiles.begin(tile);
    const int64_t num_rows = block.tiles.begin(tile + 1) - begin;
    const uint32_t* x = block.x.words + begin * block.x.row_stride + block.k_begin / 2;
    const TileOutput out{block.y + begin * block.y_stride, block.y_stride, block.bias,
                         block.k_begin == 0};
    kMultiplyRows[num_rows - 1](x, block.x.row_stride, w, num_pairs, out);
  }
}

constexpr PanelKernel kKernel = {
    .tile_rows_max = kTileRows,
    .direct_tile_rows_max = kTileRows,
    .direct_rows_max = kTileRows,
    .k_per_word = 2,
    .block_k = 384,  // 24 kB of weights: three quarters of a first-level cache of 32 kB
    .direct_block_k = 128,
    .pack_tile = pack_tile,
    .prepare_block = prepare_block,
    .multiply_block = multiply_block,
    .multiply_direct = multiply_direct,
};

}  // namespace
}  // namespace halley::panel_gemm

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace halley::panel_gemm {

const PanelKernel& bf16_avx512_panel_kernel() { return kKernel; }

bool has_avx512_bf16() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16");
}

}  // namespace halley::panel_gemm

#else

namespace halley::panel_gemm {

const PanelKernel& bf16_avx512_panel_kernel() {
  HALLEY_CHECK(false, "bf16_avx512 chosen on a processor that is no x86-64");
  return f32_panel_kernel();
}

bool has_avx512_bf16() { return false; }

}  // namespace halley::panel_gemm

#endif
