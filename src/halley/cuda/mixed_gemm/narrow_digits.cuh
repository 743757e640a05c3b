// A stage of the kernel for few tokens of 16 bits, whose inputs are digits of s8.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/input_digits.cuh"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/narrow_arguments.h"
#include "halley/cuda/ptx/cp_async.cuh"

namespace halley::cuda {

/// Numbers of the inputs and of the groups' parameters. zero() undoes zero_bits() of an entry.
template <MixedKind kKind>
struct NarrowType;

template <>
struct NarrowType<MixedKind::kU4F16> : F16Digits {
  static __device__ __forceinline__ float zero(uint32_t entry, bool is_upper) {
    const float stored = numbers(entry).y;
    return is_upper ? -64 - stored : stored - 1024;
  }
};
template <>
struct NarrowType<MixedKind::kU4Bf16> : Bf16Digits {
  static __device__ __forceinline__ float zero(uint32_t entry, bool) {
    return numbers(entry).y - 128;
  }
};
template <>
struct NarrowType<MixedKind::kU8F16> : F16Digits {
  static __device__ __forceinline__ float zero(uint32_t entry, bool) {
    return numbers(entry).y - 1024;
  }
};
template <>
struct NarrowType<MixedKind::kU8Bf16> : Bf16Digits {
  static __device__ __forceinline__ float zero(uint32_t entry, bool) {
    return static_cast<float>(entry >> 16);
  }
};

/// A warp's inputs: those of chunks `warp`, `warp` + kNarrowWarps and so on. All are copied to
/// shared memory ahead of the weights, behind which they would come late, and converted some at a
/// time when the first of them is multiplied. Of 16 inputs a word of codes has 2c, 2c + 8, 2c + 1
/// and 2c + 9 in its bytes (nibble_place()), of 4 bits of both rows.
template <MixedKind kKind>
struct NarrowInputs {
  using Digits = InputDigits<NarrowType<kKind>>;
  Digits digits;
  uint8_t* copies;  // [own] of inputs that are not where their digits will be
  int warp, kept, num_own;

  __device__ __forceinline__ NarrowInputs(const NarrowArguments& args, uint8_t* shared, int of_warp,
                                          int lane)
      : digits{.source = {static_cast<const uint8_t*>(args.x), args.x_stride_bytes,
                          args.x_row_bytes, args.M, args.num_chunks},
               .bytes =
                   shared + args.narrow.digits + of_warp * args.narrow.kept * digit_bytes(args.M),
               .places = {lane / 4 * 32 + lane % 4 * 4, lane / 4 * 32 + lane % 4 * 4 + 16,
                          lane % 4 * 8 + lane / 4},
               .lane = lane},
        copies(shared + args.narrow.copies + of_warp * args.narrow.warp_copies),
        warp(of_warp),
        kept(args.narrow.kept),
        num_own((args.num_chunks - of_warp + kNarrowWarps - 1) / kNarrowWarps) {}

  /// Where the digits of the warp's chunk `own` are.
  __device__ __forceinline__ int slot(int own) const {
    return own < kept ? own : own % kNarrowBatch;
  }
  __device__ __forceinline__ uint8_t* copy(int own) const {
    return kept >= num_own ? digits.chunk(own)
                           : copies + own * digits.source.M * Digits::kChunkBytes;
  }
  __device__ __forceinline__ void fetch() const {
#pragma unroll 1
    for (int own = 0; own < num_own; ++own) digits.fetch(warp + own * kNarrowWarps, copy(own));
    ptx::cp_async_commit_group();
  }
  /// Before the warp's chunk `own` is multiplied. The copies are there.
  __device__ __forceinline__ void provide(int own, bool is_first_pass) const {
    if (own % kNarrowBatch != 0 || (!is_first_pass && kept >= num_own)) return;
    uint32_t pairs[kDigitTokens][kNarrowBatch][2];
#pragma unroll
    for (int m = 0; m < kDigitTokens; ++m) {
#pragma unroll
      for (int i = 0; i < kNarrowBatch; ++i) {
        if (m >= digits.source.M || own + i >= num_own) continue;
        digits.load_fetched(copy(own + i) + m * Digits::kChunkBytes, pairs[m][i]);
      }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < kDigitTokens; ++m) {
#pragma unroll
      for (int i = 0; i < kNarrowBatch; ++i) {
        if (m < digits.source.M && own + i < num_own) {
          digits.convert(slot(own + i), m, pairs[m][i]);
        }
      }
    }
    __syncwarp();
  }
};

/// One stage of a warp's ring.
template <class Decoder>
struct NarrowDigitStage {
  static constexpr MixedKind kKind = Decoder::kKind;
  using Type = NarrowType<kKind>;
  static constexpr int kInputBytes = 0;       // none come with the weights
  static constexpr int kSteps = kChunkSteps;  // products of 32 inputs
  /// Of a row of 16 outputs: the outputs g and g + 8, of a lane's columns.
  struct Totals {
    float of[2] = {};
  };

  const NarrowArguments& args;
  const uint8_t* bytes = nullptr;
  int lane = 0;
  DigitColumns columns = {};
  /// Sums of the inputs of a group up to a step.
  float input_sums[kSteps] = {};

  /// A step's products, to a group's sums.
  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply(int step, const uint32_t (&a)[4],
                                           int32_t (&sums)[4]) const {
    const bool is_first =
        step == 0 || (!kIsOneGroup && (step & ((1 << args.group_shift) - 1)) == 0);
    add_product(is_first, sums, a, columns.x[2 * step], columns.x[2 * step + 1]);
  }

  template <bool kIsOneGroup>
  __device__ __forceinline__ void prepare(const NarrowInputs<kKind>& inputs, int own) {
    columns.load(inputs.digits, inputs.slot(own));
    constexpr uint32_t kOnes[4] = {0x01010101u, 0, 0x01010101u, 0};
    int32_t sums[4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      multiply<kIsOneGroup>(step, kOnes, sums);
      if (!kIsOneGroup || step + 1 == kSteps) input_sums[step] = columns.total(sums);
    }
  }

  /// A group's sums of codes, of 4 bits those of the rows g + 8 16 times too large, to totals.
  __device__ __forceinline__ void add_group(int i, int step, const int32_t (&sums)[4],
                                            Totals& totals) const {
    const int group = step >> args.group_shift;
    const auto entry = *reinterpret_cast<const uint2*>(
        bytes + args.narrow.groups +
        ((group * args.narrow.rows + i) * 8 + lane / 4) * group_entry_bytes(kKind));
    constexpr float kUpper = is_u8(kKind) ? 1 : 16;
    const float scale = Type::numbers(entry.x).x, upper_scale = Type::numbers(entry.y).x / kUpper;
    const float ones = input_sums[step];
    const float first = fmaf(-Type::zero(entry.x, false), ones, columns.total(sums));
    const float second = fmaf(-kUpper * Type::zero(entry.y, true), ones, columns.total(sums + 2));
    totals.of[0] = fmaf(scale, first, totals.of[0]);
    totals.of[1] = fmaf(upper_scale, second, totals.of[1]);
  }

  template <bool kIsOneGroup>
  __device__ __forceinline__ void multiply_row(int i, Totals& totals) const {
    int32_t sums[4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      // 16 bytes have the codes of two steps, of 8 bits those of one as operand A.
      const int part = is_u8(kKind) ? step : step / 2;
      const auto codes = *reinterpret_cast<const uint4*>(bytes + i * row_code_bytes(kKind) +
                                                         part * kHalfCodeBytes + lane * 16);
      if constexpr (is_u8(kKind)) {
        const uint32_t a[4] = {codes.x, codes.y, codes.z, codes.w};
        multiply<kIsOneGroup>(step, a, sums);
      } else {
        const uint32_t u = step % 2 == 0 ? codes.x : codes.z, v = step % 2 == 0 ? codes.y : codes.w;
        const uint32_t a[4] = {u & 0x0F0F0F0Fu, u & 0xF0F0F0F0u, v & 0x0F0F0F0Fu, v & 0xF0F0F0F0u};
        multiply<kIsOneGroup>(step, a, sums);
      }
      const bool ends =
          kIsOneGroup ? step + 1 == kSteps : ((step + 1) & ((1 << args.group_shift) - 1)) == 0;
      if (ends) add_group(i, step, sums, totals);
    }
  }

  /// [token][sum_pitch] of this warp.
  __device__ __forceinline__ void store(const Totals& totals, int place, float* sums) const {
    const int token = lane % 4 / 2;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float sum = totals.of[e] + __shfl_xor_sync(~0u, totals.of[e], 1);
      if (lane % 2 == 0 && token < args.M) {
        sums[token * args.narrow.sum_pitch + place + lane / 4 + e * 8] = sum;
      }
    }
  }
};

}  // namespace halley::cuda
