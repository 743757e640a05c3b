// W4Ax consumer without overlap in the CTA: it dequantizes nothing while MMAs run.
#pragma once

#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_consumer.cuh"

namespace halley::cuda {

/// Works with a one-stage pipeline too: it releases a stage before it waits for the next one.
template <int kTokens, class Codes>
struct SerialConsumer : W4axConsumer<kTokens, Codes> {
  using Consumer = W4axConsumer<kTokens, Codes>;
  using Sums = typename Consumer::Sums;

  static __device__ __forceinline__ void begin(const TileThread&) {}

  /// As W4axConsumer::run().
  static __device__ __forceinline__ void run(const TileArguments& args, const TileRing& ring,
                                             const TileThread& self, int num_blocks,
                                             ptx::PipelineState* stage_place, Sums& sums) {
    typename Consumer::Fragments fragments;
    typename Consumer::BlockSums of_block;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
    ptx::PipelineState place = *stage_place;
#pragma unroll 1
    for (int left = num_blocks; left > 0; --left) {
      const uint32_t stage = ring.stage(args, place.index);
      ptx::mbarrier_wait_parity(ring.full(args, place.index), place.parity);
      typename Codes::Loaded loaded;
      Consumer::load_codes(stage, self, loaded);
      Codes::decode(loaded, fragments);
      Consumer::start_products(fragments, Consumer::low_descriptor(stage), of_block);
      ptx::wgmma_wait_group<0>();
      const typename Consumer::OutputScales outputs = Consumer::load_output_scales(stage, self);
      const uint32_t token_scales = Consumer::token_scales_of(stage, self);
#pragma unroll
      for (int column = 0; column < Consumer::kColumns; column += Consumer::kBatch) {
        uint2 tokens[Consumer::kBatch];
        Consumer::load_token_scales(token_scales, column, tokens);
        Consumer::add_scaled(outputs, tokens, column, of_block, sums);
      }
      release_part(args, ring, self.lane, place.index);
      place.advance(args.num_stages);
    }
    *stage_place = place;
  }
};

}  // namespace halley::cuda
