// A stage of the kernel for few tokens of 16 bits, as products of 16 bits: more tokens than digits
// find room for.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/narrow_arguments.h"
#include "halley/cuda/mixed_gemm/narrow_stage.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::cuda {

/// One stage of a warp's ring.
template <class Decoder>
struct NarrowPlainStage {
  static constexpr MixedKind kKind = Decoder::kKind;
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
        ptx::cvta_to_shared(bytes) +
        static_cast<uint32_t>(args.narrow.inputs + (lane / 8 * args.M + token) * 16);
#pragma unroll
    for (int v = 0; v < kChunkSteps; ++v) {
      ptx::ldmatrix_x4(x[v], row + static_cast<uint32_t>(v * 64 * args.M));
    }
    float sums[4] = {};
#pragma unroll
    for (int step = 0; step < kChunkSteps; ++step) {
      if (!kIsOneGroup && (step & ((1 << args.group_shift) - 1)) == 0) sums[0] = sums[1] = 0;
      Decoder::multiply_ones(sums, x[step][0], x[step][1]);
      Decoder::multiply_ones(sums, x[step][2], x[step][3]);
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
      // 16 bytes have the codes of two steps, of 8 bits those of one.
      const int part = is_u8(kKind) ? step : step / 2;
      const auto codes = *reinterpret_cast<const uint4*>(bytes + i * row_code_bytes(kKind) +
                                                         part * kHalfCodeBytes + lane * 16);
      uint32_t a[4];
      if constexpr (is_u8(kKind)) {
        Decoder::decode_plain(a, codes.x, codes.y);
      } else {
        Decoder::decode_plain(a, step % 2 == 0 ? codes.x : codes.z);
      }
      Decoder::multiply_narrow(group_sums, a, x[step][0], x[step][1]);
      if constexpr (is_u8(kKind)) {
        Decoder::decode_plain(a, codes.z, codes.w);
      } else {
        Decoder::decode_plain(a, step % 2 == 0 ? codes.y : codes.w);
      }
      Decoder::multiply_narrow(group_sums, a, x[step][2], x[step][3]);
      const bool ends =
          kIsOneGroup ? step + 1 == kChunkSteps : ((step + 1) & ((1 << args.group_shift) - 1)) == 0;
      if (ends) {
        Decoder::add_group(load_group(i, step), input_sums[step], group_sums, totals.of);
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
