// The Hopper product of a 4-bit weight: y[m,n] = sum over k of x[m,k] w[n,k], scaled.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/hopper_launch.cuh"
#include "halley/cuda/mixed_gemm/mixed_epilogue.cuh"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {

/// Two warpgroups multiply, two warps of the third copy.
template <class Decoder, int kTokens, int kOutputs>
__global__ void __launch_bounds__(kMixedThreads, 1)
    mixed_kernel(const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ MixedArguments args) {
  constexpr int kStrips = kOutputs / 128;
  // Small tiles do not wait for them at the end, large ones have no registers to spare.
  constexpr bool kLoadsScalesEarly = kTokens < 128;
  using Consumer = MixedConsumer<Decoder, kTokens, kStrips>;
  using Epilogue = MixedEpilogue<Decoder, kTokens, kStrips>;
  extern __shared__ uint4 shared_memory[];
  MixedRing ring;
  ring.base = (shared_address_of(shared_memory) + kStageAlignment - 1) &
              ~static_cast<uint32_t>(kStageAlignment - 1);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(args, ring);
  __syncthreads();

  if (thread >= kConsumerThreads) {
    give_registers<40>();
    if (thread / 32 == kConsumerThreads / 32) {
      produce_weights<kOutputs>(args, ring);
    } else if (thread == kConsumerThreads + 32) {
      produce_activations<Decoder::kKind, kTokens>(x_map, args, ring);
    }
  } else {
    take_registers<232>();
    wait_for_previous_kernel();
    const MixedThread self = {thread, thread / 128, thread % 128, thread % 128 / 32, thread % 32};
    const int block = static_cast<int>(blockIdx.x);
    MixedStage stage;
    MixedSegment segment = first_segment(args.schedule, block);
    while (segment.num_chunks > 0) {
      MixedPlace place;
      place.tile = segment.tile;
      place.token = segment.tile % args.token_tiles * kTokens;
      place.output = segment.tile / args.token_tiles * kOutputs + self.warpgroup * kStrips * 64;
      place.tokens_left = args.M - place.token;
      Epilogue::stage_token_scales(args, ring, self, place);
      typename Epilogue::OutputScales scales;
      if constexpr (kLoadsScalesEarly) scales = Epilogue::load_scales(args, self, place);
      typename Consumer::Sums sums;
      Consumer::run(args, ring, self, segment.num_chunks, &stage, sums);
      if constexpr (!kLoadsScalesEarly) scales = Epilogue::load_scales(args, self, place);
      if (segment.num_chunks == args.schedule.num_chunks ||
          Epilogue::add_parts(args, ring, self, place, sums)) {
        if (args.y_dtype == DType::kF32) {
          Epilogue::write_f32(args, ring, self, place, scales, sums);
        } else {
          Epilogue::write_16_bits(args, ring, self, place, scales, sums);
        }
      }
      segment = next_segment(args.schedule, block, segment);
    }
  }
}

template <class Decoder, int kTokens, int kOutputs>
void launch_mixed(const CUtensorMap& x_map, const MixedArguments& args, cudaStream_t stream) {
  const auto kernel = mixed_kernel<Decoder, kTokens, kOutputs>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  args.shared.num_bytes),
             "shared memory of mixed_gemm");
  launch_hopper_kernel(kernel,
                       {.num_blocks = args.schedule.num_blocks,
                        .num_threads = kMixedThreads,
                        .shared_bytes = args.shared.num_bytes,
                        .starts_early = args.starts_early,
                        .stream = stream},
                       x_map, args);
}

}  // namespace halley::cuda
