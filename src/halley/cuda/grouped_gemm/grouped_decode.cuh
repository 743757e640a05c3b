// Weights of a row block to operands of mma.sync: a decoder for each kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/mixed_gemm/mixed_u8_decode.cuh"
#include "halley/cuda/mma_gemm/mma_decode.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/ptx/mma_fp8.cuh"

namespace halley::cuda {

/// Rows of 8-bit values, which ldmatrix makes operands of.
template <class Mma>
struct MmaRows {
  using Sum = typename Mma::Accumulator;

  static __device__ __forceinline__ void multiply(Sum (&sums)[4], const uint32_t (&a)[8],
                                                  const uint32_t (&b)[4]) {
    ptx::mma_sync<Mma>(sums, a, b[0], b[1]);
    ptx::mma_sync<Mma>(sums, a + 4, b[2], b[3]);
  }
};

/// In the order of GroupedKind. Kinds with scales decode weights as cuda/mma_gemm; others multiply
/// values less their zeros, and scale the accumulators of a group (decode_less_zero() of
/// cuda/mixed_gemm).
using GroupedDecoders = std::tuple<MmaU4S8, MmaU4GroupS8, U4F16Decoder, U4Bf16Decoder, U8F16Decoder,
                                   U8Bf16Decoder, MmaRows<ptx::MmaS8>, MmaRows<ptx::MmaE4m3>>;
static_assert(std::tuple_size_v<GroupedDecoders> == kNumQuantizedKinds);

template <GroupedKind kKind>
using GroupedDecoder = std::tuple_element_t<static_cast<size_t>(kKind), GroupedDecoders>;

}  // namespace halley::cuda
