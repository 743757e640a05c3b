// The core of the integer dot-product GEMM on the AVX512-VNNI instructions, which multiply bytes
// and accumulate in 32 bits. Highway 1.0 has no operation for it.
#include "halley/base/check.h"
#include "halley/kernels/gemm/dot_kernel.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vnni"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vnni")
#endif

namespace halley::dot_gemm {
namespace {

#define HALLEY_UNROLL _Pragma("GCC unroll 32")
#define HALLEY_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 16;
constexpr int kVecs = static_cast<int>(kPanelRows) / kLanes;

// A vector of quad 2 * pair + kHalf.
struct ByteWeights {
  static constexpr int64_t kPairBytes = 2 * kQuadValues;
  template <int kHalf>
  static HALLEY_INLINE __m512i load_quad(const uint8_t* weights, int64_t pair, int v) {
    return _mm512_load_si512(weights + (2 * pair + kHalf) * kQuadValues + v * kLanes * 4);
  }
};
struct PackedU4Weights {
  static constexpr int64_t kPairBytes = kQuadValues;
  template <int kHalf>
  static HALLEY_INLINE __m512i load_quad(const uint8_t* weights, int64_t pair, int v) {
    const __m512i packed = _mm512_load_si512(weights + pair * kQuadValues + v * kLanes * 4);
    const __m512i mask = _mm512_set1_epi8(15);
    return _mm512_and_si512(kHalf == 0 ? packed : _mm512_srli_epi16(packed, 4), mask);
  }
};

template <class Source, int kHalf, int R>
HALLEY_INLINE void add_quad(const DotArgs& args, int64_t pair, __m512i (&tile)[R][kVecs]) {
  const uint32_t* words = args.words + (2 * pair + kHalf) * R;
  __m512i columns[kVecs];
  HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
    columns[v] = Source::template load_quad<kHalf>(args.weights, pair, v);
  }
  HALLEY_UNROLL for (int row = 0; row < R; ++row) {
    const __m512i slices = _mm512_set1_epi32(static_cast<int>(words[row]));
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      tile[row][v] = _mm512_dpbusd_epi32(tile[row][v], columns[v], slices);
    }
  }
}

template <class Source, int R>
void multiply(const DotArgs& args) {
  __m512i tile[R][kVecs];
  HALLEY_UNROLL for (int row = 0; row < R; ++row) {
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) tile[row][v] = _mm512_setzero_si512();
  }
  const uint8_t* ahead = args.weights + args.ahead_bytes;
  for (int64_t pair = 0; pair < args.num_pairs; ++pair, ahead += Source::kPairBytes) {
    for (int64_t byte = 0; byte < Source::kPairBytes; byte += 64) {
      __builtin_prefetch(ahead + byte, /*rw=*/0, /*locality=*/2);
    }
    add_quad<Source, 0, R>(args, pair, tile);
    add_quad<Source, 1, R>(args, pair, tile);
  }
  HALLEY_UNROLL for (int row = 0; row < R; ++row) {
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      _mm512_store_si512(args.acc + row * kPanelRows + v * kLanes, tile[row][v]);
    }
  }
}

template <class Source>
constexpr DotCore::Rows kRows = {multiply<Source, 1>, multiply<Source, 2>, multiply<Source, 3>,
                                 multiply<Source, 4>, multiply<Source, 5>, multiply<Source, 6>};
constexpr DotCore::Rows kU4Rows = kRows<PackedU4Weights>;
constexpr DotCore kCore = {"avx512_vnni", 1, kRows<ByteWeights>, &kU4Rows};

}  // namespace
}  // namespace halley::dot_gemm

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace halley::dot_gemm {

const DotCore& vnni_core() { return kCore; }

bool has_avx512_vnni() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace halley::dot_gemm

#else

namespace halley::dot_gemm {

const DotCore& vnni_core() {
  HALLEY_CHECK(false, "vnni chosen on a processor that is no x86-64");
  return narrow_core();
}

bool has_avx512_vnni() { return false; }

}  // namespace halley::dot_gemm

#endif
