// Weights of a row block to operands of mma.sync: a decoder for each kind. Those of 4 bits are
// mma_gemm's.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/register_bits.cuh"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/mixed_gemm/mixed_u8_decode.cuh"
#include "halley/cuda/mma_gemm/mma_decode.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/ptx/mma_fp8.cuh"

namespace halley::cuda {

/// Rows of 8-bit values, which ldmatrix makes operands of.
template <class Mma>
struct MmaRows {
  using Sum = typename Mma::Accumulator;
  static constexpr int kUnits = 2;

  static __device__ __forceinline__ void multiply(Sum (&sums)[4], const uint32_t (&a)[8],
                                                  const uint32_t (&b)[4]) {
    ptx::mma_sync<Mma>(sums, a, b[0], b[1]);
    ptx::mma_sync<Mma>(sums, a + 4, b[2], b[3]);
  }
};

template <GroupedKind kKind>
struct GroupedDecoderOf;
template <>
struct GroupedDecoderOf<GroupedKind::kU4S8> {
  using Decoder = MmaU4S8;
};
template <>
struct GroupedDecoderOf<GroupedKind::kU4GroupS8> {
  using Decoder = MmaU4GroupS8;
};
template <>
struct GroupedDecoderOf<GroupedKind::kU4F16> {
  using Decoder = U4F16Decoder;
};
template <>
struct GroupedDecoderOf<GroupedKind::kU4Bf16> {
  using Decoder = U4Bf16Decoder;
};
template <>
struct GroupedDecoderOf<GroupedKind::kU8F16> {
  using Decoder = U8F16Decoder;
};
template <>
struct GroupedDecoderOf<GroupedKind::kU8Bf16> {
  using Decoder = U8Bf16Decoder;
};
template <>
struct GroupedDecoderOf<GroupedKind::kS8> {
  using Decoder = MmaRows<ptx::MmaS8>;
};
template <>
struct GroupedDecoderOf<GroupedKind::kE4m3> {
  using Decoder = MmaRows<ptx::MmaE4m3>;
};

/// Kinds with scales decode weights as cuda/mma_gemm; others multiply values less their zeros, and
/// scale the accumulators of a group (decode_less_zero() of cuda/mixed_gemm).
template <GroupedKind kKind>
using GroupedDecoder = typename GroupedDecoderOf<kKind>::Decoder;

}  // namespace halley::cuda
