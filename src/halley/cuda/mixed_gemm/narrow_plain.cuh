// A stage of the kernel for few tokens of 16 bits, as products of 16 bits: more tokens than digits
// find room for.
#pragma once

#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/hopper_instructions.cuh"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/narrow_arguments.h"
#include "halley/cuda/mixed_gemm/narrow_mma.cuh"
#include "halley/cuda/mixed_gemm/narrow_stage.cuh"

namespace halley::cuda {

/// sums += scale * (group_sums + less * input_sums), of two tokens.
__device__ __forceinline__ void add_scaled(float scale, float less, const float (&input_sums)[2],
                                           const float* group_sums, float* sums) {
  sums[0] = fmaf(scale, fmaf(less, input_sums[0], group_sums[0]), sums[0]);
  sums[1] = fmaf(scale, fmaf(less, input_sums[1], group_sums[1]), sums[1]);
}

template <class T>
__device__ __forceinline__ T bits_as(uint32_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// How plain codes are multiplied:
///   decode_plain()     a word of codes, neither less their zero nor scaled
///   multiply_narrow()  those and inputs
///   multiply_ones()    codes that are all one, for the rows g
///   add_group()        products of plain codes to sums, with the group's parameters
template <MixedKind kKind>
struct NarrowPlain;

template <>
struct NarrowPlain<MixedKind::kU4F16> {
  /// Codes as the mantissas of numbers without exponent: 2^-24 times the code, those of the rows
  /// g + 8 16 times more.
  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t codes) {
    a[0] = codes & 0x000F000Fu;
    a[1] = codes & 0x00F000F0u;
    a[2] = codes >> 8 & 0x000F000Fu;
    a[3] = codes >> 8 & 0x00F000F0u;
  }
  static __device__ __forceinline__ void multiply_narrow(float (&sums)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_f16(sums, a, b0, b1);
  }
  static __device__ __forceinline__ void multiply_ones(float (&sums)[4], uint32_t b0, uint32_t b1) {
    multiply_narrow(sums, {0x00010001u, 0, 0x00010001u, 0}, b0, b1);
  }
  /// Entries have 1024 + zero of the row g, and -(64 + zero) of g + 8.
  static __device__ __forceinline__ void add_group(const uint2& group, const float (&input_sums)[2],
                                                   const float (&group_sums)[4], float (&sums)[4]) {
    const float2 lower = __half22float2(bits_as<__half2>(group.x));
    const float2 upper = __half22float2(bits_as<__half2>(group.y));
    add_scaled(lower.x * 0x1p24f, 1024 - lower.y, input_sums, group_sums, sums);
    add_scaled(upper.x * 0x1p20f, fmaf(16, upper.y, 1024), input_sums, group_sums + 2, sums + 2);
  }
};

template <>
struct NarrowPlain<MixedKind::kU4Bf16> {
  /// 128 + code.
  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t codes) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = (codes >> (4 * i) & 0x000F000Fu) | 0x43004300u;
  }
  static __device__ __forceinline__ void multiply_narrow(float (&sums)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_bf16(sums, a, b0, b1);
  }
  static __device__ __forceinline__ void multiply_ones(float (&sums)[4], uint32_t b0, uint32_t b1) {
    multiply_narrow(sums, {0x3F803F80u, 0, 0x3F803F80u, 0}, b0, b1);
  }
  /// Entries have 128 + zero.
  static __device__ __forceinline__ void add_group(const uint2& group, const float (&input_sums)[2],
                                                   const float (&group_sums)[4], float (&sums)[4]) {
    const float2 lower = __bfloat1622float2(bits_as<__nv_bfloat162>(group.x));
    const float2 upper = __bfloat1622float2(bits_as<__nv_bfloat162>(group.y));
    add_scaled(lower.x, -lower.y, input_sums, group_sums, sums);
    add_scaled(upper.x, -upper.y, input_sums, group_sums + 2, sums + 2);
  }
};

/// One stage of a warp's ring.
template <class Decoder>
struct NarrowPlainStage {
  static constexpr MixedKind kKind = Decoder::kKind;
  using Plain = NarrowPlain<kKind>;
  static constexpr int kInputBytes = 2;
  /// Of a row of 16 outputs: as mma.sync has them.
  struct Totals {
    float of[4] = {};
  };

  const NarrowArguments& args;
  const uint8_t* bytes = nullptr;
  int lane = 0;
  /// Operand B, of steps.
  uint32_t x[kChunkSteps][4] = {};
  /// Sums of a group's inputs up to a step, of tokens 2c and 2c + 1.
  float input_sums[kChunkSteps][2] = {};

  /// Rows of tokens that do not exist give sums that nobody reads. Inputs are summed by the tensor
  /// cores, as codes are, with a weight whose codes are all one.
  template <bool kIsOneGroup>
  __device__ __forceinline__ void prepare(const NarrowStagedInputs&, int) {
    const int token = min(lane % 8, args.M - 1);
    const uint32_t row =
        shared_address_of(bytes) +
        static_cast<uint32_t>(args.narrow.inputs + (lane / 8 * args.M + token) * 16);
#pragma unroll
    for (int v = 0; v < kChunkSteps; ++v) {
      load_matrices(row + static_cast<uint32_t>(v * 64 * args.M), x[v]);
    }
    float sums[4] = {};
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      if (!kIsOneGroup && (step & ((1 << args.group_shift) - 1)) == 0) sums[0] = sums[1] = 0;
      Plain::multiply_ones(sums, x[step][0], x[step][1]);
      Plain::multiply_ones(sums, x[step][2], x[step][3]);
      input_sums[step][0] = sums[0];
      input_sums[step][1] = sums[1];
    }
  }

  __device__ __forceinline__ uint2 load_group(int i, int step) const {
    const int group = step >> args.group_shift;
    return *reinterpret_cast<const uint2*>(bytes + args.narrow.groups +
                                           ((group * args.narrow.rows + i) * 8 + lane / 4) *
                                               group_entry_bytes(kKind));
  }

  /// Codes times inputs, summed over a group, then scaled.
  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply_row(int i, Totals& totals) const {
    float group_sums[4] = {};
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      const auto codes = *reinterpret_cast<const uint4*>(bytes + i * kRowCodeBytes +
                                                         step / 2 * kHalfCodeBytes + lane * 16);
      uint32_t a[4];
      Plain::decode_plain(a, step % 2 == 0 ? codes.x : codes.z);
      Plain::multiply_narrow(group_sums, a, x[step][0], x[step][1]);
      Plain::decode_plain(a, step % 2 == 0 ? codes.y : codes.w);
      Plain::multiply_narrow(group_sums, a, x[step][2], x[step][3]);
      const bool ends =
          kIsOneGroup ? step + 1 == kChunkSteps : ((step + 1) & ((1 << args.group_shift) - 1)) == 0;
      if (ends) {
        Plain::add_group(load_group(i, step), input_sums[step], group_sums, totals.of);
#pragma unroll
        for (float& sum : group_sums) sum = 0;
      }
    }
  }

  __device__ __forceinline__ void store(const Totals& totals, int place, float* sums) const {
    store_narrow_sums(args, lane, totals.of, place, sums);
  }
};

}  // namespace halley::cuda
