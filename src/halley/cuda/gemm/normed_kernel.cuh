// The kernel of a product of one row behind a norm (normed_gemm.h).
//
// One warp copies weights into a ring of stages, from before earlier kernels are done. All others
// make the whole row in shared memory, and then one warpgroup multiplies.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/normed_arguments.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/row_inputs.cuh"
#include "halley/cuda/gemm/streamed_ring.cuh"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/wgmma.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

inline constexpr int kNormedWarps = 8;
inline constexpr int kNormedProductWarps = 4;
inline constexpr int kNormedConsumers = kNormedWarps * 32;
inline constexpr int kNormedThreads = kNormedConsumers + 32;

template <class Type, typename T>
constexpr RowNumbers normed_numbers() {
  if (std::is_same_v<Type, ptx::WgmmaE4m3>) return RowNumbers::kE4m3;
  return std::is_same_v<T, __half> ? RowNumbers::kF16 : RowNumbers::kBf16;
}

struct NormedRing {
  uint32_t base, barriers;
  int stage_bytes, num_stages;

  __device__ uint32_t weights(int stage) const {
    return base + static_cast<uint32_t>(stage * stage_bytes);
  }
  __device__ uint32_t full(int stage) const { return barriers + static_cast<uint32_t>(stage * 8); }
  __device__ uint32_t empty(int stage) const { return full(stage + num_stages); }
  /// Ends its phase when the row has been read.
  __device__ uint32_t row_read() const { return full(2 * num_stages); }
};

/// One thread: all weights of the block, strip after strip of each part of the inputs.
__device__ __forceinline__ void copy_normed_weights(const CUtensorMap& map,
                                                    const NormedArguments& args,
                                                    const NormedRing& ring) {
  const NormedPlan& plan = args.plan;
  const int chunk_bytes = plan.strip_rows * kStreamedChunkBytes;
  const int in_box = plan.is_gated ? plan.strips / 2 : plan.strips;
  ptx::PipelineState stage;
  stage.parity = 1;  // every stage is empty at first
  int num_early = plan.early_stages;
  for (int tile = static_cast<int>(blockIdx.x); tile < plan.num_tiles;
       tile += static_cast<int>(gridDim.x)) {
    for (int chunk = 0; chunk < plan.num_chunks; chunk += plan.stage_chunks) {
      const int count = min(plan.stage_chunks, plan.num_chunks - chunk);
      for (int strip = 0; strip < plan.strips; ++strip) {
        const int row = tile * plan.tile_places() + strip % in_box * plan.strip_rows +
                        (strip < in_box ? 0 : args.places);
        const uint32_t full = ring.full(stage.index);
        uint32_t to = ring.weights(stage.index);
        ptx::mbarrier_wait_parity(ring.empty(stage.index), stage.parity);
        if (num_early-- == 0) ptx::mbarrier_wait_parity(ring.row_read(), 0);
        ptx::mbarrier_arrive_expect_tx(full, count * chunk_bytes);
        for (int i = 0; i < count; ++i) {
          ptx::cp_async_bulk_tensor_3d(to, &map, {0, row, chunk + i}, full, ptx::kEvictFirst);
          to += static_cast<uint32_t>(chunk_bytes);
        }
        stage.advance(ring.num_stages);
      }
    }
  }
}

/// The products of the first warpgroup.
template <class Type, typename T, int kStrips>
class NormedConsumer {
 public:
  static constexpr bool kIsCodes = std::is_same_v<Type, ptx::WgmmaE4m3>;

  __device__ __forceinline__ NormedConsumer(const NormedArguments& args, const NormedRing& ring,
                                            float x_scale)
      : args_(args),
        ring_(ring),
        inputs_(ring.base + static_cast<uint32_t>(args.plan.inputs)),
        x_scale_(x_scale) {}

  __device__ __forceinline__ void run() {
    for (int tile = static_cast<int>(blockIdx.x); tile < args_.plan.num_tiles;
         tile += static_cast<int>(gridDim.x)) {
      float sums[kStrips][4];
      if constexpr (kIsCodes) {
        multiply_codes(sums);
      } else {
        multiply(sums);
      }
      write(tile, sums);
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  static __device__ __forceinline__ uint64_t descriptor_of(uint32_t address) {
    return (address & 0x3FFFFu) >> 4;
  }
  /// Weights: rows of 128 bytes, eight of them 1024 bytes from the next, swizzled by 128 bytes (PTX
  /// ISA, "Matrix Descriptor Format").
  static constexpr uint64_t kWeights = uint64_t{1} << 62 | uint64_t{64} << 32 | uint64_t{1} << 16;
  /// Inputs: the one row of them, not swizzled. Units of 16 bytes: those of a row follow each
  /// other, and so do the eight rows of a unit, so that what the tensor cores take for other rows
  /// is the same row further on. Its sums are of no use.
  static constexpr uint64_t kInputs = uint64_t{8} << 32 | uint64_t{1} << 16;

  __device__ __forceinline__ void release(int stage) const {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(ring_.empty(stage));
  }

  __device__ __forceinline__ void multiply(float (&sums)[kStrips][4]) {
    const NormedPlan& plan = args_.plan;
    const uint64_t w_chunk = static_cast<uint64_t>(plan.strip_rows * kStreamedChunkBytes) >> 4;
    ptx::PipelineState stage = stage_;
    int previous = -1;
    uint64_t x = kInputs | descriptor_of(inputs_);
#pragma unroll 1
    for (int chunk = 0; chunk < plan.num_chunks; chunk += plan.stage_chunks) {
      const int count = min(plan.stage_chunks, plan.num_chunks - chunk);
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        ptx::mbarrier_wait_parity(ring_.full(stage.index), stage.parity);
        const uint64_t w = kWeights | descriptor_of(ring_.weights(stage.index));
#pragma unroll 1
        for (int c = 0; c < count; ++c) {
          ptx::wgmma_fence();
#pragma unroll
          for (int step = 0; step < kStreamedChunkBytes / 32; ++step) {
            ptx::wgmma_ss<Type>(sums[i], w + c * w_chunk + step * 2,
                                x + c * (kStreamedChunkBytes >> 4) + step * 2,
                                step > 0 || c > 0 || chunk > 0 ? 1 : 0);
          }
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<1>();
          if (c == 0 && previous >= 0) release(previous);
        }
        previous = stage.index;
        stage.advance(ring_.num_stages);
      }
      x += static_cast<uint64_t>(count * (kStreamedChunkBytes >> 4));
    }
    ptx::wgmma_wait_group<0>();
    // The compiler may not use sums before that.
#pragma unroll
    for (int i = 0; i < kStrips; ++i) ptx::warpgroup_fence_operand(sums[i]);
    release(previous);
    stage_ = stage;
  }

  /// Sums of e4m3 in the tensor cores keep few bits: those of 256 inputs are added to others in
  /// f32, as streamed_gemm() does.
  __device__ __forceinline__ void multiply_codes(float (&sums)[kStrips][4]) {
    const NormedPlan& plan = args_.plan;
    const uint64_t w_chunk = static_cast<uint64_t>(plan.strip_rows * kStreamedChunkBytes) >> 4;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][e] = 0;
    }
    uint64_t x = kInputs | descriptor_of(inputs_);
#pragma unroll 1
    for (int chunk = 0; chunk < plan.num_chunks; chunk += plan.stage_chunks) {
      const int count = min(plan.stage_chunks, plan.num_chunks - chunk);
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        ptx::mbarrier_wait_parity(ring_.full(stage_.index), stage_.parity);
        const uint64_t w = kWeights | descriptor_of(ring_.weights(stage_.index));
#pragma unroll 1
        for (int c = 0; c < count; c += 2) {
          float some[4];
          ptx::wgmma_fence();
          multiply_chunk(some, w + c * w_chunk, x + c * (kStreamedChunkBytes >> 4), 0);
          multiply_chunk(some, w + (c + 1) * w_chunk, x + (c + 1) * (kStreamedChunkBytes >> 4), 1);
          ptx::wgmma_commit_group();
          ptx::wgmma_wait_group<0>();
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][e] += some[e];
        }
        release(stage_.index);
        stage_.advance(ring_.num_stages);
      }
      x += static_cast<uint64_t>(count * (kStreamedChunkBytes >> 4));
    }
  }

  static __device__ __forceinline__ void multiply_chunk(float (&sums)[4], uint64_t w, uint64_t x,
                                                        int keeps) {
#pragma unroll
    for (int step = 0; step < kStreamedChunkBytes / 32; ++step) {
      ptx::wgmma_ss<Type>(sums, w + step * 2, x + step * 2, step > 0 ? 1 : keeps);
    }
  }

  __device__ __forceinline__ T rounded(float sum, int output) const {
    if constexpr (kIsCodes) {
      const RowScales& scales = args_.scales;
      if (scales.w_scales != nullptr) {
        sum *= __ldg(scales.w_scales + (scales.is_w_tensor ? 0 : output));
      }
      sum *= x_scale_;
    }
    return from_f32<T>(args_.bias == nullptr ? sum : sum + __ldg(args_.bias + output));
  }

  /// A thread whose lane is a multiple of four has sums of the row in elements 0 and 2 of a strip.
  __device__ __forceinline__ void write(int tile, const float (&sums)[kStrips][4]) const {
    if (lane() % 4 != 0) return;
    const NormedPlan& plan = args_.plan;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane() / 4 + 8 * half;
        const int place = tile * plan.tile_places() + i * plan.strip_rows + row;
        if (i >= (plan.is_gated ? kStrips / 2 : kStrips) || row >= plan.strip_rows ||
            place >= args_.places) {
          continue;
        }
        T y = rounded(sums[i][2 * half], place);
        if constexpr (kStrips > 1) {
          if (plan.is_gated) {
            const T factor =
                rounded(sums[(i + kStrips / 2) % kStrips][2 * half], args_.places + place);
            y = from_f32<T>(__fmul_rn(activate(args_.activation, to_float(y)), to_float(factor)));
          }
        }
        static_cast<T*>(args_.y)[place] = y;
      }
    }
  }

  const NormedArguments& args_;
  const NormedRing& ring_;
  const uint32_t inputs_;
  const float x_scale_;  // of codes
  ptx::PipelineState stage_;
};

template <class Type, typename T>
__global__ void __launch_bounds__(kNormedThreads, 1)
    normed_kernel(const __grid_constant__ CUtensorMap map,
                  const __grid_constant__ NormedArguments args,
                  const __grid_constant__ Rounding rounding) {
  extern __shared__ uint4 shared_memory[];
  NormedRing ring;
  ring.base = (ptx::cvta_to_shared(shared_memory) + 1023) & ~1023u;
  ring.barriers = ring.base + static_cast<uint32_t>(args.plan.barriers);
  ring.stage_bytes = args.plan.stage_bytes;
  ring.num_stages = args.plan.num_stages;
  if (threadIdx.x == kNormedConsumers) {
    for (int stage = 0; stage < ring.num_stages; ++stage) {
      ptx::mbarrier_init(ring.full(stage), 1);
      ptx::mbarrier_init(ring.empty(stage), kNormedProductWarps);
    }
    ptx::mbarrier_init(ring.row_read(), 1);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async_shared();
  }
  __syncthreads();
  if (threadIdx.x >= kNormedConsumers) {
    if (threadIdx.x == kNormedConsumers) {
      copy_normed_weights(map, args, ring);
      // Not earlier: blocks of the next kernel would take this one's share of the bandwidth.
      ptx::griddepcontrol_launch_dependents();
    }
    return;
  }
  RowInputs<normed_numbers<Type, T>(), kNormedWarps> inputs(
      args.row, rounding, ring.base + static_cast<uint32_t>(args.plan.inputs),
      reinterpret_cast<uint32_t*>(reinterpret_cast<uint8_t*>(shared_memory) + ring.base -
                                  ptx::cvta_to_shared(shared_memory) + args.plan.scratch));
  ptx::griddepcontrol_wait();
  inputs.load();
  if (threadIdx.x == 0) ptx::mbarrier_arrive(ring.row_read());
  inputs.write();
  ptx::fence_proxy_async_shared();
  ptx::bar_sync<kNormedConsumers>(1);
  if (threadIdx.x >= kNormedProductWarps * 32) return;
  if (args.plan.strips == 1) {
    NormedConsumer<Type, T, 1>(args, ring, inputs.scale).run();
  } else if (args.plan.strips == 2) {
    NormedConsumer<Type, T, 2>(args, ring, inputs.scale).run();
  } else {
    NormedConsumer<Type, T, 4>(args, ring, inputs.scale).run();
  }
}

/// See normed_arguments.h.
template <class Type, typename T>
void launch_normed_of(const CudaContext& context, const CUtensorMap& map,
                      const NormedArguments& args) {
  const auto kernel = normed_kernel<Type, T>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "shared memory of normed_gemm");
  launch_kernel(context, "normed_gemm",
                {.grid = dim3(static_cast<unsigned>(args.plan.num_blocks)),
                 .block = dim3(kNormedThreads),
                 .shared_bytes = static_cast<size_t>(args.plan.num_bytes)},
                kernel, map, args, rounding_of(args.quant));
}

}  // namespace halley::cuda
