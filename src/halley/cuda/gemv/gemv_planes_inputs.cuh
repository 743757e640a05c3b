// Inputs as bit planes, which the tensor cores multiply codes by as these lie in memory: a binary
// product counts the bits that are set in both.
//
// A column of operand B is a plane: bit p of all inputs of a piece, at the places where a lane's
// words have bits of the codes of one output. Of codes of 2 bits the higher bit's place has plane
// p - 1, so that the count is worth 2^p. Numbers are in two's complement, their sign in all planes
// above: the last plane counts negative.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/input_digits.cuh"
#include "halley/cuda/gemv/gemv_layout.h"
#include "halley/cuda/gemv/gemv_planes.h"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::cuda {

struct S8Planes {
  static constexpr GemvInputs kInputs = GemvInputs::kS8;
};
struct F16Planes : F16Digits {
  static constexpr GemvInputs kInputs = GemvInputs::kNumbers;
};
struct Bf16Planes : Bf16Digits {
  static constexpr GemvInputs kInputs = GemvInputs::kNumbers;
};

/// Bits of `a` where `mask` has them, else of `b`.
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  return (a & mask) | (b & ~mask);
}

/// Words of four fields of kBits bits, one group of fields behind the other: words[q] becomes the
/// fields q of all four.
template <int kBits>
__device__ __forceinline__ void transpose_fields(uint32_t (&words)[4]) {
  constexpr uint32_t kPairs = ~0u / ((1u << 2 * kBits) + 1);  // every other pair of fields
  constexpr uint32_t kFields = ~0u / ((1u << kBits) + 1);
  uint32_t halves[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    halves[i] = select_bits(kPairs, words[i], words[i + 2] << 2 * kBits);
    halves[i + 2] = select_bits(kPairs, words[i] >> 2 * kBits, words[i + 2]);
  }
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    words[i] = select_bits(kFields, halves[i], halves[i + 1] << kBits);
    words[i + 1] = select_bits(kFields, halves[i] >> kBits, halves[i + 1]);
  }
}

/// Rows of x.
struct PlaneSource {
  const uint8_t* x;
  int64_t stride_bytes;
  int row_bytes;  // of K inputs
  int num_pieces;
};

/// The planes of a warp's pieces, `warp`, `warp` + kGemvPlaneWarps and so on, in shared memory. A
/// lane makes those of one word of one of four pieces.
template <class Type, int kBits, int kRows>
struct InputPlanes {
  static constexpr bool kIsS8 = Type::kInputs == GemvInputs::kS8;
  static constexpr int kProducts = gemv_plane_products(Type::kInputs);
  static constexpr int kPlanes = 8 * kProducts;
  static constexpr int kBytes = gemv_plane_bytes(Type::kInputs);
  static constexpr int kVectors = kIsS8 ? 1 : 2;  // of 16 bytes, of 16 inputs
  /// Of a copy of a row of x.
  static constexpr int kCopyBytes = kGemvPieceInputs * (kIsS8 ? 1 : 2);

  PlaneSource source;
  uint8_t* base;    // of the warp: [own][row]
  uint8_t* copies;  // of inputs that are not where their planes will be: [own][row]
  int kept, num_own, warp, lane;

  __device__ __forceinline__ bool keeps_all() const { return kept >= num_own; }
  __device__ __forceinline__ uint8_t* planes(int own, int m) const {
    return base + ((own < kept ? own : own % kGemvPlaneBatch) * kRows + m) * kBytes;
  }
  __device__ __forceinline__ uint8_t* copy(int own, int m) const {
    return keeps_all() ? planes(own, m) : copies + (own * kRows + m) * kCopyBytes;
  }

  /// Starts copies of all inputs: behind weights under way they would come late.
  __device__ __forceinline__ void fetch() const {
    constexpr int kOfPiece = kCopyBytes / 16;
#pragma unroll 1
    for (int i = lane; i < num_own * kOfPiece; i += 32) {
      const int own = i / kOfPiece, in_piece = i % kOfPiece * 16;
      const int at = (warp + own * kGemvPlaneWarps) * kCopyBytes + in_piece;
      const int there = max(0, min(16, source.row_bytes - at));
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        ptx::cp_async_cg(ptx::cvta_to_shared(copy(own, m) + in_piece),
                         source.x + m * source.stride_bytes + (there > 0 ? at : 0), there);
      }
    }
    ptx::cp_async_commit_group();
  }

  /// To planes of the warp's pieces `begin` to `begin` + 3. The copies are there.
  __device__ __forceinline__ void convert(int begin) const {
    const int own = min(begin + lane / 8, num_own - 1);
    const bool is_there = begin + lane / 8 < num_own;
    uint4 x[kRows][kVectors];
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        x[m][v] = *reinterpret_cast<const uint4*>(copy(own, m) + place(v));
      }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      uint8_t* to = planes(own, m);
      if constexpr (kIsS8) {
        convert_s8(x[m][0], to, is_there);
      } else {
        convert_numbers(x[m], to, is_there);
      }
    }
    __syncwarp();
  }

 private:
  /// Where in a piece a lane's 16 inputs are, in bytes: they have the places of one word.
  __device__ __forceinline__ int place(int v) const {
    const int word = lane % 2, c = lane / 2 % 4;
    return (kIsS8 ? word : 2 * word + v) * 64 + c * 16;
  }
  /// Plane p is column n of a product: lane n / 2 of a sum's row has planes 2 kProducts (n / 2) and
  /// on.
  static constexpr int place_of(int p) {
    const int c = p / (2 * kProducts), rest = p % (2 * kProducts);
    return rest / 2 * 64 + (2 * c + rest % 2) * 8;
  }
  __device__ __forceinline__ void store_plane(uint8_t* to, int p, uint32_t word,
                                              bool is_there) const {
    if (is_there) reinterpret_cast<uint32_t*>(to)[place_of(p) + lane % 8] = word;
  }
  /// What a unit of a sum is worth, and the sum of the inputs.
  __device__ __forceinline__ void store_numbers(uint8_t* to, float unit, float sum,
                                                bool is_there) const {
    if (is_there && lane % 8 == 0) {
      *reinterpret_cast<float2*>(to + kBytes - 32) = {unit, sum};
    }
  }
  static __device__ __forceinline__ uint32_t max_of_8(uint32_t value) {
#pragma unroll
    for (int i = 1; i < 8; i *= 2) value = max(value, __shfl_xor_sync(~0u, value, i));
    return value;
  }
  static __device__ __forceinline__ int sum_of_8(int value) {
#pragma unroll
    for (int i = 1; i < 8; i *= 2) value += __shfl_xor_sync(~0u, value, i);
    return value;
  }

  __device__ __forceinline__ void convert_s8(const uint4& x, uint8_t* to, bool is_there) const {
    uint32_t words[4] = {x.x, x.y, x.z, x.w};
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = __dp4a(static_cast<int>(words[i]), 0x01010101, sum);
    sum = sum_of_8(sum);
    if constexpr (kBits == 1) {
      transpose_fields<1>(words);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_plane(to, i, words[i] & 0x0F0F0F0Fu, is_there);
        store_plane(to, i + 4, words[i] >> 4 & 0x0F0F0F0Fu, is_there);
      }
    } else {
      transpose_fields<2>(words);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_plane(to, 2 * i, words[i] & 0x55555555u, is_there);
        store_plane(to, 2 * i + 1, words[i] >> 1 & 0x55555555u, is_there);
      }
    }
    store_numbers(to, 1, static_cast<float>(sum), is_there);
  }

  /// Which of the numbers [step 2][8] byte b of word q has, so that planes have the places of the
  /// codes' bits.
  static constexpr int number_at(int q, int b) {
    return kBits == 2 ? q % 2 * 8 + b % 2 * 4 + q / 2 * 2 + b / 2 : b % 2 * 8 + q * 2 + b / 2;
  }

  __device__ __forceinline__ void store_planes(const uint32_t (&numbers)[16], uint8_t* to,
                                               bool is_there) const {
    uint32_t digits[3][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      uint32_t four[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) four[b] = numbers[number_at(q, b)];
      const uint32_t low = __byte_perm(four[0], four[1], 0x5140);
      const uint32_t high = __byte_perm(four[2], four[3], 0x5140);
      digits[0][q] = __byte_perm(low, high, 0x5410);
      digits[1][q] = __byte_perm(low, high, 0x7632);
      digits[2][q] = __byte_perm(__byte_perm(four[0], four[1], 0x0062),
                                 __byte_perm(four[2], four[3], 0x0062), 0x5410);
    }
    uint32_t before = 0;
#pragma unroll
    for (int d = 0; d < 3; ++d) {
      transpose_fields<2>(digits[d]);
#pragma unroll
      for (int b = 0; b < 8; ++b) {
        const uint32_t plane = digits[d][b / 2] >> (b % 2) & 0x55555555u;
        store_plane(to, 8 * d + b, kBits == 2 ? plane + 2 * before : plane, is_there);
        before = plane;
      }
    }
  }

  __device__ __forceinline__ void convert_numbers(const uint4 (&x)[2], uint8_t* to,
                                                  bool is_there) const {
    constexpr uint32_t kMagnitude = 0x7FFF7FFFu;
    const uint32_t pairs[8] = {x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w};
    uint32_t both = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) both = __vmaxu2(both, pairs[i] & kMagnitude);
    const uint32_t most = max_of_8(max(both & 0xFFFFu, both >> 16));
    const uint32_t exponent = max(most >> Type::kMantissaBits, Type::kExponentMin);
    const int shift = static_cast<int>(exponent) - Type::kScaleExponent;
    const float scale = power_of_2(-shift);
    uint32_t v[16];
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 two = Type::numbers(pairs[i]);
      v[2 * i] = __float_as_uint(fmaf(two.x, scale, kDigitSumBaseNumber)) -
                 static_cast<uint32_t>(kDigitSumBase);
      v[2 * i + 1] = __float_as_uint(fmaf(two.y, scale, kDigitSumBaseNumber)) -
                     static_cast<uint32_t>(kDigitSumBase);
      sum += v[2 * i] + v[2 * i + 1];
    }
    const float unit =
        exponent == Type::kNotFinite ? __uint_as_float(0x7FC00000u) : power_of_2(shift);
    store_numbers(to, unit, static_cast<float>(sum_of_8(static_cast<int>(sum))) * unit, is_there);
    store_planes(v, to, is_there);
  }
};

}  // namespace halley::cuda
