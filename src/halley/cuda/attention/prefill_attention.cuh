// Prefill attention with wgmma (FlashAttention-3's structure), persistent CTAs.
//
// q, out: [M, H * D] row-major f16 or bf16;  pages: [2, J, P, D] of the cache's type (keys, values)
// shared memory, 128-byte swizzle: queries [128, D] per query stage, keys and values [tile, D] each
// per stage
// acc_s: [64, tile] f32 and acc_o: [64, D] f32 per consumer warpgroup
//
// A CTA has a query tile of 128 rows (tokens times heads of one kv head) and iterates over KV tiles
// of 128 positions (32 for heads above 128) in ascending order. Two consumer warpgroups compute 64
// rows each. The four warps of a third warpgroup are producers: they bring keys and values as f16
// or bf16, and move queries in and outputs out. A CTA runs many work tiles without draining its
// pipeline between them.
#pragma once

#include <cuda.h>

#include "halley/cuda/attention/prefill_consumer.cuh"
#include "halley/cuda/attention/prefill_dequantizer.cuh"
#include "halley/cuda/attention/prefill_mover.cuh"
#include "halley/cuda/attention/prefill_producers.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/registers.cuh"

namespace halley::attention {

/// The kernel reads `map` only if params.box_tokens is not 0.
template <KvDType kType, int kHeadDim>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams params,
                   const __grid_constant__ CUtensorMap map) {
  using Shape = PrefillShape<kType, kHeadDim>;
  const PrefillMemory<Shape> memory;
  const bool uses_tma = !Shape::kIsDequantized && params.box_tokens > 0;
  if (threadIdx.x == 0) {
    memory.init_barriers(uses_tma ? 1 : kProducerThreads,
                         uses_tma ? kProducerWarps - 1 : kProducerWarps);
  }
  if (!Shape::kIsDequantized && params.rows.head_dim < kHeadDim) {
    // Zero-fills the columns from head_dim to kHeadDim, which no copy writes.
    constexpr int kQuads = 2 * Shape::kStages * Shape::kTileBytes / 16;
    for (int i = static_cast<int>(threadIdx.x); i < kQuads; i += kPrefillThreads) {
      ptx::st_shared_b32x4(memory.keys(0) + 16 * i, make_uint4(0, 0, 0, 0));
    }
    ptx::fence_proxy_async_shared();
  }
  __syncthreads();
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 32), 0);
  if (warp >= kConsumerThreads / 32) {
    ptx::setmaxnreg_dec<Shape::kProducerRegisters>();
    if constexpr (Shape::kIsDequantized) {
      const int own_warp = warp - kConsumerThreads / 32;
      DequantizingProducer<Shape> producer{
          params, memory, {params, memory, own_warp, kProducerWarps}};
      producer.run();
    } else if (!uses_tma) {
      CpAsyncProducer<Shape> producer{params, memory};
      producer.run();
    } else if (warp == kConsumerThreads / 32) {
      TmaProducer<Shape> producer{params, map, memory};
      producer.run();
    } else {
      RowMover<Shape> mover{params, memory, warp - kConsumerThreads / 32 - 1, kProducerWarps - 1};
      while (mover.next()) {
      }
      mover.finish();
    }
  } else {
    ptx::setmaxnreg_inc<Shape::kConsumerRegisters>();
    PrefillConsumer<Shape> consumer{params, memory};
    consumer.run();
  }
}

}  // namespace halley::attention
