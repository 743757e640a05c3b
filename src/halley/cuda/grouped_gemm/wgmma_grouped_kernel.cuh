// The grouped GEMM by wgmma: a fixed grid of CTAs that take tiles in turn. Weights are operand A,
// dequantized in registers or, of rows, from shared memory; tokens are operand B.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "halley/cuda/grouped_gemm/wgmma_copies.cuh"
#include "halley/cuda/grouped_gemm/wgmma_grouped_epilogue.cuh"
#include "halley/cuda/grouped_gemm/wgmma_rows_consumer.cuh"
#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/mixed_gemm/mixed_kernel.cuh"
#include "halley/cuda/mixed_gemm/mixed_u8_decode.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/registers.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// In the order of MixedKind.
using PackedDecoders = std::tuple<U4S8Decoder, U4GroupS8Decoder, U4F16Decoder, U4Bf16Decoder,
                                  U8F16Decoder, U8Bf16Decoder>;

/// The consumer multiplies the weights of a kind. kIsOneGroup: every packed tile is one group.
template <GroupedKind kKind, int kTokens, bool kIsOneGroup, bool kIsRows = is_rows(kKind)>
struct WgmmaConsumerOf {
  using Consumer = WgmmaRowsConsumer<kKind, kTokens>;
};
template <GroupedKind kKind, int kTokens, bool kIsOneGroup>
struct WgmmaConsumerOf<kKind, kTokens, kIsOneGroup, false> {
  using Decoder = std::tuple_element_t<static_cast<size_t>(kKind), PackedDecoders>;
  using Consumer = SegmentConsumer<Decoder, kTokens, kWgmmaTileRows / 128, kIsOneGroup>;
};

inline constexpr int kWgmmaThreads = 384;

/// Two warpgroups.
template <GroupedKind kKind, int kTokens, bool kIsOneGroup>
__device__ __forceinline__ void consume_grouped(const WgmmaGroupedArguments& args,
                                                const MixedRing& ring, const WgmmaTiles& tiles) {
  using Consumer = typename WgmmaConsumerOf<kKind, kTokens, kIsOneGroup>::Consumer;
  const int thread = static_cast<int>(threadIdx.x);
  const MixedThread self = {thread, thread / 128, thread % 128, thread % 128 / 32, thread % 32};
  const WgmmaGroupedEpilogue<kKind, kTokens> epilogue(args, ring, self);
  ptx::PipelineState stage;
  const int num_tiles = tiles.count();
  for (int i = static_cast<int>(blockIdx.x); i < num_tiles; i += static_cast<int>(gridDim.x)) {
    const GroupedTile tile = tiles.at(i);
    epilogue.start_scales(tile);
    typename WgmmaGroupedEpilogue<kKind, kTokens>::Sums sums;
    Consumer::run(args.ring, ring, self, args.num_stages_of_k, &stage, sums);
    epilogue.store(tile, sums);
  }
}

/// Two warpgroups multiply; of the third two warps copy.
template <GroupedKind kKind, int kTokens>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_grouped_kernel(const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ WgmmaGroupedArguments args) {
  extern __shared__ uint4 shared_memory[];
  MixedRing ring;
  ring.base = (ptx::cvta_to_shared(shared_memory) + kStageAlignment - 1) &
              ~static_cast<uint32_t>(kStageAlignment - 1);
  const uint32_t alignment = ring.base - ptx::cvta_to_shared(shared_memory);
  ptx::opaque(ring.base);  // else it is computed again and again
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  constexpr int kFirstCopyWarp = kConsumerThreads / 32;
  if (warp == kFirstCopyWarp) init_full_stages(args.ring, ring);
  if (warp == kFirstCopyWarp + 1) {
    if (thread % 32 == 0) ptx::prefetch_tensormap(&x_map);
    init_empty_stages(args.ring, ring);
  }
  WgmmaTiles tiles;
  tiles.grid = {.num_experts = args.num_experts,
                .tile_rows = kTokens,
                .tile_outputs = kWgmmaTileRows,
                .output_tiles = args.output_tiles};
  tiles.tables.expert_begin = reinterpret_cast<int32_t*>(
      reinterpret_cast<std::byte*>(shared_memory) + alignment + args.tables);
  tiles.tables.row_tile_begin = tiles.tables.expert_begin + args.num_experts + 1;
  ptx::griddepcontrol_wait();
  fill_tables(args.expert_begin, args.num_experts, kTokens, tiles.tables);
  __syncthreads();
  if (thread >= kConsumerThreads) {
    ptx::setmaxnreg_dec<40>();
    if (warp == kFirstCopyWarp) {
      copy_wgmma_weights<kKind>(args, ring, tiles);
      // Not earlier: CTAs of the next kernel would take SMs from this one's copies.
      ptx::griddepcontrol_launch_dependents();
    } else if (thread == kConsumerThreads + 32) {
      copy_wgmma_tokens<kKind, kTokens>(x_map, args, ring, tiles);
    }
  } else {
    ptx::setmaxnreg_inc<232>();
    // Not for each tile: with both around the same accumulators ptxas serialises the tensor cores.
    constexpr bool kHasGroups = !is_rows(kKind) && !has_scales(kKind);
    if (kHasGroups && 1 << args.ring.group_shift == kChunkSteps) {
      consume_grouped<kKind, kTokens, kHasGroups>(args, ring, tiles);
    } else {
      consume_grouped<kKind, kTokens, false>(args, ring, tiles);
    }
  }
}

template <GroupedKind kKind, int kTokens>
void launch_wgmma_grouped(const CudaContext& context, const CUtensorMap& x_map,
                          const WgmmaGroupedArguments& args) {
  // No more CTAs than there can be tiles: every expert may end in a tile that is not full.
  const int64_t row_tiles_max =
      args.num_slots / kTokens + std::min<int64_t>(args.num_slots, args.num_experts);
  const int64_t ctas = std::min<int64_t>(row_tiles_max * args.output_tiles, context.device.num_sms);
  launch_kernel(context, "wgmma_grouped_gemm",
                {.grid = dim3(static_cast<unsigned>(ctas)),
                 .block = dim3(kWgmmaThreads),
                 .shared_bytes = static_cast<size_t>(kStageAlignment + args.tables +
                                                     slot_table_bytes(args.num_experts))},
                wgmma_grouped_kernel<kKind, kTokens>, x_map, args);
}

}  // namespace halley::cuda
