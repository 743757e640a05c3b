// Inputs of 16 bits as numbers of 24 bits in three digits of s8, which the tensor cores multiply by
// unsigned codes as they are stored: half the products and a fraction of the decoding that numbers
// of 16 bits need.
//
// Per 128 inputs (a chunk) of a token the largest exponent decides what the digits are worth: an
// input is rounded to 2^-22 of the largest one. Sums are exact until they are scaled.
#pragma once

#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/input_digits.h"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"

namespace halley::cuda {

/// What sums of the tensor cores begin with: as f32 they are this, and the sum in the last bits.
/// Sums below 2^22 find room: 128 products of a code below 256 and a digit do.
inline constexpr int32_t kDigitSumBase = 0x4B400000;
inline constexpr float kDigitSumBaseNumber = 12582912;

struct F16Digits {
  static constexpr uint32_t kNotFinite = 31;  // the exponent of these
  static constexpr int kMantissaBits = 10;
  /// Numbers with the exponent e, times 2 to this less e, are below 2^22.
  static constexpr int kScaleExponent = 36;
  static constexpr uint32_t kExponentMin = 0;
  static __device__ __forceinline__ float2 numbers(uint32_t bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof(pair));
    return __half22float2(pair);
  }
};
struct Bf16Digits {
  static constexpr uint32_t kNotFinite = 255;
  static constexpr int kMantissaBits = 7;
  static constexpr int kScaleExponent = 148;
  /// Chunks of smaller numbers lose digits: the scale must be a number of f32.
  static constexpr uint32_t kExponentMin = 40;
  static __device__ __forceinline__ float2 numbers(uint32_t bits) {
    __nv_bfloat162 pair;
    memcpy(&pair, &bits, sizeof(pair));
    return __bfloat1622float2(pair);
  }
};

__device__ __forceinline__ float power_of_2(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

/// A group's sums: the first product of it begins anew.
__device__ __forceinline__ void add_product(bool is_first, int32_t (&sums)[4],
                                            const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  constexpr int32_t kBase[4] = {kDigitSumBase, kDigitSumBase, kDigitSumBase, kDigitSumBase};
  if (is_first) {
    ptx::mma_sync<ptx::MmaU8S8>(sums, a, b0, b1, kBase);
  } else {
    ptx::mma_sync<ptx::MmaU8S8>(sums, a, b0, b1, sums);
  }
}

/// x of f16 or bf16.
struct DigitSource {
  const uint8_t* x;
  int64_t stride_bytes;
  int row_bytes;  // of K inputs
  int M;
  int num_chunks;
};

/// Which inputs of a chunk a lane makes a word of: p, q, p + 1, q + 1, in this order.
struct DigitPlaces {
  int first_byte, second_byte;  // of p and of q
  int word;                     // where it goes: [lane % 4 of who reads it][8]
};

/// The digits of the chunks that a warp takes, in shared memory.
template <class Type>
struct InputDigits {
  DigitSource source;
  uint8_t* bytes;  // [chunk]: [token][digit][32 words], then [token] of f32
  DigitPlaces places;
  int lane;

  __device__ __forceinline__ uint8_t* chunk(int index) const {
    return bytes + index * digit_bytes(source.M);
  }
  __device__ __forceinline__ float* units(int index) const {
    return reinterpret_cast<float*>(chunk(index) + source.M * kDigits * kDigitColumnBytes);
  }

  __device__ __forceinline__ void convert(int index, int m, const uint32_t (&pairs)[2]) const {
    constexpr uint32_t kMagnitude = 0x7FFF7FFFu;
    const uint32_t both = __vmaxu2(pairs[0] & kMagnitude, pairs[1] & kMagnitude);
    const uint32_t most = __reduce_max_sync(~0u, max(both & 0xFFFFu, both >> 16));
    const uint32_t exponent = max(most >> Type::kMantissaBits, Type::kExponentMin);
    const int shift = static_cast<int>(exponent) - Type::kScaleExponent;
    const float scale = power_of_2(-shift);
    const float2 a = Type::numbers(pairs[0]), b = Type::numbers(pairs[1]);
    const float numbers[4] = {a.x, b.x, a.y, b.y};
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // The integer in the last bits; 128 more in each digit, and again less, makes them signed.
      constexpr uint32_t kMiddle = 0x00808080u;
      const uint32_t bits = __float_as_uint(fmaf(numbers[i], scale, kDigitSumBaseNumber));
      words[i] = (bits + (kMiddle - static_cast<uint32_t>(kDigitSumBase))) ^ kMiddle;
    }
    const uint32_t low = __byte_perm(words[0], words[1], 0x5140);
    const uint32_t high = __byte_perm(words[2], words[3], 0x5140);
    constexpr int kNext = kDigitColumnBytes / 4;
    auto* const to = reinterpret_cast<uint32_t*>(chunk(index)) + kDigits * m * kNext + places.word;
    to[0] = __byte_perm(low, high, 0x5410);
    to[kNext] = __byte_perm(low, high, 0x7632);
    to[2 * kNext] = __byte_perm(__byte_perm(words[0], words[1], 0x0062),
                                __byte_perm(words[2], words[3], 0x0062), 0x5410);
    if (lane == 0) {
      units(index)[m] =
          exponent == Type::kNotFinite ? __uint_as_float(0x7FC00000u) : power_of_2(shift);
    }
  }

  /// Chunks `warp`, `warp` + num_warps and so on, for the warp itself.
  __device__ __forceinline__ void convert_all(int warp, int num_warps) const {
    constexpr int kAhead = 4;  // read before the first is converted
    for (int m = 0; m < source.M; ++m) {
#pragma unroll 1
      for (int first = warp; first < source.num_chunks; first += kAhead * num_warps) {
        uint32_t pairs[kAhead][2];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) load(first + i * num_warps, m, pairs[i]);
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          const int index = first + i * num_warps;
          if (index < source.num_chunks) convert(index, m, pairs[i]);
        }
      }
    }
    __syncwarp();
  }

  /// Reads what convert() takes of chunk `index` of x; beyond the last, nothing.
  __device__ __forceinline__ void load(int index, int m, uint32_t (&pairs)[2]) const {
    const uint8_t* x = source.x + m * source.stride_bytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // K may be odd: what is behind it need not be memory.
      const int at = index * kDigitChunk * 2 + (half == 0 ? places.first_byte : places.second_byte);
      const int there = source.row_bytes - at;
      pairs[half] = 0;
      if (there >= 4) pairs[half] = *reinterpret_cast<const uint32_t*>(x + at);
      if (there == 2) pairs[half] = *reinterpret_cast<const uint16_t*>(x + at);
    }
  }

  /// Starts a copy of chunk `index` of x to [token][kChunkBytes] of shared memory.
  __device__ __forceinline__ void fetch(int index, uint8_t* to) const {
    for (int m = 0; m < source.M; ++m) {
      const int at = index * kChunkBytes + lane * 8;
      const int there = max(0, min(8, source.row_bytes - at));
      ptx::cp_async_ca<8>(ptx::cvta_to_shared(to + m * kChunkBytes + lane * 8),
                          source.x + m * source.stride_bytes + (there > 0 ? at : 0), there);
    }
  }
  /// What convert() takes of a token of such a copy.
  __device__ __forceinline__ void load_fetched(const uint8_t* from, uint32_t (&pairs)[2]) const {
    pairs[0] = *reinterpret_cast<const uint32_t*>(from + places.first_byte);
    pairs[1] = *reinterpret_cast<const uint32_t*>(from + places.second_byte);
  }

  static constexpr int kChunkBytes = 2 * kDigitChunk;
};

/// A chunk's inputs in a lane's registers: of operand B column lane / 4, which is digit q % 4 of
/// token q / 4 (of none for q % 4 = 3), words of lane % 4. Of the sums the lane has columns
/// 2 (lane % 4) and the next.
struct DigitColumns {
  uint32_t x[8];
  float units[2];

  template <class Type>
  __device__ __forceinline__ void load(const InputDigits<Type>& digits, int chunk) {
    const int column = digits.lane / 4, c = digits.lane % 4, last = digits.source.M - 1;
    const int row = min(column / 4, last) * kDigits + min(column % 4, kDigits - 1);
    const auto* from =
        reinterpret_cast<const uint4*>(digits.chunk(chunk) + row * kDigitColumnBytes + c * 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 four = from[i];
      x[4 * i] = four.x;
      x[4 * i + 1] = four.y;
      x[4 * i + 2] = four.z;
      x[4 * i + 3] = four.w;
    }
    const float unit = digits.units(chunk)[min(c / 2, last)];
    units[0] = c % 2 == 0 ? unit : unit * 65536.0f;
    units[1] = c % 2 == 0 ? unit * 256.0f : 0.0f;
  }

  /// Of a row of sums: what the lane's digits of token lane % 4 / 2 come to. The other digits are
  /// those of lane ^ 1.
  __device__ __forceinline__ float total(const int32_t* sums) const {
    const float first = __int_as_float(sums[0]) - kDigitSumBaseNumber;
    const float second = __int_as_float(sums[1]) - kDigitSumBaseNumber;
    return fmaf(units[1], second, units[0] * first);
  }
};

}  // namespace halley::cuda
