// The register tile of the integer dot-dot GEMM: rows of int8 slices of x times vectors of a
// panel's quantized weights. Compiled once for each of Highway's targets; Highway 1.0 lacks the
// operations, so that the x86 ones are spelled with intrinsics.
#if defined(HALLEY_KERNELS_GEMM_DOT_CORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_GEMM_DOT_CORE_INL_H_
#undef HALLEY_KERNELS_GEMM_DOT_CORE_INL_H_
#else
#define HALLEY_KERNELS_GEMM_DOT_CORE_INL_H_
#endif

#include <algorithm>

#include <hwy/highway.h>

#include "halley/kernels/gemm/dot_kernel.h"

// Tiles live in registers only where every loop over them is unrolled.
#ifndef HALLEY_UNROLL
#define HALLEY_UNROLL _Pragma("GCC unroll 32")
#endif

HWY_BEFORE_NAMESPACE();
namespace halley::dot_gemm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
using Reg = __m512i;
#define HALLEY_MM(operation) _mm512_##operation
HWY_INLINE Reg load(const void* from) { return _mm512_load_si512(from); }
HWY_INLINE void store(void* to, Reg value) { _mm512_store_si512(to, value); }
HWY_INLINE Reg bits_and(Reg a, Reg b) { return _mm512_and_si512(a, b); }
#elif HWY_TARGET == HWY_AVX2
using Reg = __m256i;
#define HALLEY_MM(operation) _mm256_##operation
HWY_INLINE Reg load(const void* from) { return _mm256_load_si256(static_cast<const Reg*>(from)); }
HWY_INLINE void store(void* to, Reg value) { _mm256_store_si256(static_cast<Reg*>(to), value); }
HWY_INLINE Reg bits_and(Reg a, Reg b) { return _mm256_and_si256(a, b); }
#else
using Reg = __m128i;
#define HALLEY_MM(operation) _mm_##operation
HWY_INLINE Reg load(const void* from) { return _mm_load_si128(static_cast<const Reg*>(from)); }
HWY_INLINE void store(void* to, Reg value) { _mm_store_si128(static_cast<Reg*>(to), value); }
HWY_INLINE Reg bits_and(Reg a, Reg b) { return _mm_and_si128(a, b); }
#endif

// Tells the compiler that a value is in a register at this point of the order: g++ 12 otherwise
// does all multiplications of a tile before the first addition, and spills the accumulators (89
// instead of 150 GMAC/s on a Zen 3 core, of 167 that its multipliers and adders can do).
HWY_INLINE Reg in_register(Reg value) {
  __asm__ volatile("" : "+v"(value));
  return value;
}
HWY_INLINE Reg add16(Reg sum, Reg dot) {
  dot = in_register(dot);
  return in_register(HALLEY_MM(add_epi16)(in_register(sum), dot));
}
HWY_INLINE Reg add32(Reg sum, Reg dot) {
  dot = in_register(dot);
  return in_register(HALLEY_MM(add_epi32)(in_register(sum), dot));
}

HWY_INLINE Reg broadcast(uint32_t word) { return HALLEY_MM(set1_epi32)(static_cast<int>(word)); }

// Weights of up to 4 bits: bytes are multiplied, added in pairs and accumulated in 16 bits.
struct Narrow {
  static constexpr int64_t kWordsPerQuad = 1;
  using Acc = Reg;
  struct Operand {
    Reg quad;
  };

  static HWY_INLINE Acc zero() { return HALLEY_MM(set1_epi32)(0); }
  static HWY_INLINE Operand widen_weights(Reg quad) { return {quad}; }
  template <int R>
  static HWY_INLINE Operand slices(const uint32_t* words) {
    return {broadcast(words[0])};
  }
  static HWY_INLINE Acc add(Acc sum, const Operand& weights, const Operand& slices) {
    return add16(sum, HALLEY_MM(maddubs_epi16)(weights.quad, slices.quad));
  }
  static HWY_INLINE Reg widen(Acc sum) {
    return HALLEY_MM(madd_epi16)(sum, HALLEY_MM(set1_epi16)(1));
  }
};

// Weights of 8 bits as two vectors of 16 bits: k 0 and 2, k 1 and 3.
struct Wide {
  static constexpr int64_t kWordsPerQuad = 2;
  using Acc = Reg;
  struct Operand {
    Reg even, odd;
  };

  static HWY_INLINE Acc zero() { return HALLEY_MM(set1_epi32)(0); }
  static HWY_INLINE Operand widen_weights(Reg quad) {
    return {bits_and(quad, HALLEY_MM(set1_epi16)(0xFF)), HALLEY_MM(srli_epi16)(quad, 8)};
  }
  template <int R>
  static HWY_INLINE Operand slices(const uint32_t* words) {
    return {broadcast(words[0]), broadcast(words[R])};
  }
  static HWY_INLINE Acc add(Acc sum, const Operand& weights, const Operand& slices) {
    const Reg even = add32(sum, HALLEY_MM(madd_epi16)(weights.even, slices.even));
    return add32(even, HALLEY_MM(madd_epi16)(weights.odd, slices.odd));
  }
  static HWY_INLINE Reg widen(Acc sum) { return sum; }
};

HWY_INLINE Reg add_acc(Reg a, Reg b) { return HALLEY_MM(add_epi32)(a, b); }
HWY_INLINE Reg low_halves(Reg packed) { return bits_and(packed, HALLEY_MM(set1_epi8)(15)); }
HWY_INLINE Reg high_halves(Reg packed) {
  return bits_and(HALLEY_MM(srli_epi16)(packed, 4), HALLEY_MM(set1_epi8)(15));
}

#else  // every other target: a weight and a slice in each lane of 32 bits

using I32 = hn::CappedTag<int32_t, 16>;
using Reg = hn::Vec<I32>;

HWY_INLINE Reg load(const void* from) { return hn::Load(I32(), static_cast<const int32_t*>(from)); }
HWY_INLINE void store(int32_t* to, Reg value) { hn::Store(value, I32(), to); }

struct Narrow {
  static constexpr int64_t kWordsPerQuad = 1;
  using Acc = Reg;
  struct Operand {
    Reg k0, k1, k2, k3;
  };

  static HWY_INLINE Acc zero() { return hn::Zero(I32()); }
  static HWY_INLINE Operand widen_weights(Reg quad) {
    const auto mask = hn::Set(I32(), 0xFF);
    return {hn::And(quad, mask), hn::And(hn::ShiftRight<8>(quad), mask),
            hn::And(hn::ShiftRight<16>(quad), mask), hn::And(hn::ShiftRight<24>(quad), mask)};
  }
  template <int R>
  static HWY_INLINE Operand slices(const uint32_t* words) {
    const auto slice = [&](int j) {
      return hn::Set(I32(), static_cast<int8_t>(words[0] >> (8 * j) & 0xFF));
    };
    return {slice(0), slice(1), slice(2), slice(3)};
  }
  static HWY_INLINE Acc add(Acc sum, const Operand& weights, const Operand& slices) {
    const Reg low = hn::Add(hn::Mul(weights.k0, slices.k0), hn::Mul(weights.k1, slices.k1));
    const Reg high = hn::Add(hn::Mul(weights.k2, slices.k2), hn::Mul(weights.k3, slices.k3));
    return hn::Add(sum, hn::Add(low, high));
  }
  static HWY_INLINE Reg widen(Acc sum) { return sum; }
};
using Wide = Narrow;

HWY_INLINE Reg add_acc(Reg a, Reg b) { return hn::Add(a, b); }
HWY_INLINE Reg low_halves(Reg packed) { return hn::And(packed, hn::Set(I32(), 0x0F0F0F0F)); }
HWY_INLINE Reg high_halves(Reg packed) {
  return hn::And(hn::ShiftRight<4>(packed), hn::Set(I32(), 0x0F0F0F0F));
}

#endif
#undef HALLEY_MM

constexpr int kLanes = static_cast<int>(sizeof(Reg) / sizeof(int32_t));
constexpr int kPanelVecs = static_cast<int>(kPanelRows) / kLanes;

// A source of quantized weights gives kQuads quads at each step. load_quad() loads a vector of one
// of them, from byte `offset` of it on.
struct ByteWeights {
  static constexpr int kQuads = 1;
  const uint8_t* quads;

  template <int kQuad>
  HWY_INLINE Reg load_quad(int64_t step, int offset) const {
    return load(quads + step * kQuadValues + offset);
  }
};
struct PackedU4Weights {
  static constexpr int kQuads = 2;
  const uint8_t* pairs;

  template <int kQuad>
  HWY_INLINE Reg load_quad(int64_t step, int offset) const {
    const Reg packed = load(pairs + step * kQuadValues + offset);
    return kQuad == 0 ? low_halves(packed) : high_halves(packed);
  }
};

template <class Kind, int R, int kVecs>
using Tile = typename Kind::Acc[R][kVecs];

template <class Kind, int kQuad, int R, int kVecs, class Source>
HWY_INLINE void add_quad(const Source& weights, int64_t step, int v_begin, const uint32_t* words,
                         Tile<Kind, R, kVecs>& tile) {
  typename Kind::Operand columns[kVecs];
  HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
    columns[v] =
        Kind::widen_weights(weights.template load_quad<kQuad>(step, (v_begin + v) * kLanes * 4));
  }
  HALLEY_UNROLL for (int row = 0; row < R; ++row) {
    const typename Kind::Operand slices = Kind::template slices<R>(words + row);
    HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
      tile[row][v] = Kind::add(tile[row][v], columns[v], slices);
    }
  }
}

// R rows times kVecs vectors, from vector `v_begin` of the panel on.
template <class Kind, int R, int kVecs, class Source>
HWY_INLINE void multiply_columns(const Source& weights, int v_begin, const DotArgs args) {
  constexpr int64_t kQuadWords = R * Kind::kWordsPerQuad;
  const int64_t num_steps = args.num_pairs * 2 / Source::kQuads;
  const int64_t flush_steps = args.flush_pairs * 2 / Source::kQuads;
  // The bytes of a narrow core were unpacked for it.
  constexpr bool kPrefetches = Source::kQuads == 2 || Kind::kWordsPerQuad == 2;
  const uint8_t* ahead = args.weights + v_begin * kLanes * 4 + args.ahead_bytes;
  const uint32_t* words = args.words;
  for (int64_t step = 0; step < num_steps;) {
    const bool is_first = step == 0;
    const int64_t end = std::min(num_steps, step + flush_steps);
    Tile<Kind, R, kVecs> tile;
    HALLEY_UNROLL for (int row = 0; row < R; ++row) {
      HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) tile[row][v] = Kind::zero();
    }
    for (; step < end; ++step, words += Source::kQuads * kQuadWords) {
      if constexpr (kPrefetches) {
        constexpr int64_t kCacheLine = 64;
        for (int64_t byte = 0; byte < kVecs * kLanes * 4; byte += kCacheLine) {
          // Into the second-level cache: the loads of this block need the few slots for misses.
          __builtin_prefetch(ahead + step * kQuadValues + byte, /*rw=*/0, /*locality=*/2);
        }
      }
      add_quad<Kind, 0, R, kVecs>(weights, step, v_begin, words, tile);
      if constexpr (Source::kQuads == 2) {
        add_quad<Kind, 1, R, kVecs>(weights, step, v_begin, words + kQuadWords, tile);
      }
    }
    HALLEY_UNROLL for (int row = 0; row < R; ++row) {
      HALLEY_UNROLL for (int v = 0; v < kVecs; ++v) {
        int32_t* to = args.acc + row * kPanelRows + (v_begin + v) * kLanes;
        const Reg sum = Kind::widen(tile[row][v]);
        store(to, is_first ? sum : add_acc(load(to), sum));
      }
    }
  }
}

template <class Kind, class Source, int R>
HWY_NOINLINE void multiply(const DotArgs& args) {
  // 16 registers hold 12 accumulators, 2 vectors of weights, the slices and a dot dot.
  constexpr int kVecs = std::min(kPanelVecs, R <= 2 ? 4 : 2);
  for (int v = 0; v < kPanelVecs; v += kVecs) {
    multiply_columns<Kind, R, kVecs>(Source{args.weights}, v, args);
  }
}

template <class Kind, class Source>
constexpr DotCore::Rows kRows = {multiply<Kind, Source, 1>, multiply<Kind, Source, 2>,
                                 multiply<Kind, Source, 3>, multiply<Kind, Source, 4>,
                                 multiply<Kind, Source, 5>, multiply<Kind, Source, 6>};

}  // namespace halley::dot_gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
