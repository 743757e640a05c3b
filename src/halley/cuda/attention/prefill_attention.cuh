// Attention of prefill chunks on Hopper's warpgroup products.
//
// A block has 128 query rows, tokens times heads of one kv head, and goes through the positions in
// ascending tiles at multiples of 128 (32 for heads above 128). Two warpgroups compute 64 rows
// each; the warps of a third bring keys and values ahead of them, as f16 or bf16, and move queries
// and outputs. Blocks stay for many pieces of work, and go from one to the next without a pause.
#pragma once

#include <cuda.h>

#include "halley/cuda/attention/prefill_consumer.cuh"
#include "halley/cuda/attention/prefill_copies.cuh"
#include "halley/cuda/attention/prefill_decoder.cuh"
#include "halley/cuda/attention/prefill_mover.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"

namespace halley::attention {

/// `map` is looked at where params.box_tokens is not 0.
template <KvDType kType, int kHeadDim>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams params,
                   const __grid_constant__ CUtensorMap map) {
  using Shape = PrefillShape<kType, kHeadDim>;
  const PrefillMemory<Shape> memory;
  const bool has_boxes = !Shape::kIsDecoded && params.box_tokens > 0;
  if (threadIdx.x == 0) {
    memory.init_barriers(has_boxes ? 1 : kProducerThreads,
                         has_boxes ? kProducerWarps - 1 : kProducerWarps);
  }
  if (!Shape::kIsDecoded && params.rows.head_dim < kHeadDim) {
    // What copies leave out must multiply to 0.
    constexpr int kQuads = 2 * Shape::kStages * Shape::kTileBytes / 16;
    for (int i = static_cast<int>(threadIdx.x); i < kQuads; i += kPrefillThreads) {
      store_shared_quad(memory.keys(0) + 16 * i, make_uint4(0, 0, 0, 0));
    }
    fence_shared_for_async();
  }
  __syncthreads();
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 32), 0);
  if (warp >= kConsumerThreads / 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::kProducerRegisters));
    if constexpr (Shape::kIsDecoded) {
      const int own_warp = warp - kConsumerThreads / 32;
      DecodingProducer<Shape> producer{params, memory, {params, memory, own_warp, kProducerWarps}};
      producer.run();
    } else if (!has_boxes) {
      RowProducer<Shape> producer{params, memory};
      producer.run();
    } else if (warp == kConsumerThreads / 32) {
      BoxProducer<Shape> producer{params, map, memory};
      producer.run();
    } else {
      RowMover<Shape> mover{params, memory, warp - kConsumerThreads / 32 - 1, kProducerWarps - 1};
      while (mover.next()) {
      }
      mover.finish();
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Shape::kConsumerRegisters));
    PrefillConsumer<Shape> consumer{params, memory};
    consumer.run();
  }
}

}  // namespace halley::attention
