// The kernel of a product of one row behind a norm (normed_gemm.h).
//
// One warp copies weights into a ring of stages, from before earlier kernels are done. All others
// make the norm of the whole row in shared memory, and then one warpgroup multiplies.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/hopper_instructions.cuh"
#include "halley/cuda/gemm/normed_arguments.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/streamed_ring.cuh"
#include "halley/cuda/gemm/streamed_wgmma.cuh"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/early_launch.cuh"
#include "halley/cuda/runtime/read_ahead.cuh"

namespace halley::cuda {

inline constexpr int kNormedWarps = 8;
inline constexpr int kNormedProductWarps = 4;
inline constexpr int kNormedConsumers = kNormedWarps * 32;
inline constexpr int kNormedThreads = kNormedConsumers + 32;

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
  StreamedStage stage;
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
        wait_barrier(ring.empty(stage.index), stage.parity);
        if (num_early-- == 0) wait_barrier(ring.row_read(), 0);
        arrive_expecting(full, count * chunk_bytes);
        for (int i = 0; i < count; ++i) {
          start_streamed_box_copy(to, &map, 0, row, chunk + i, full);
          to += static_cast<uint32_t>(chunk_bytes);
        }
        stage.advance(ring.num_stages);
      }
    }
  }
}

/// The norm of the row in shared memory, by all consumers: norm_row()'s sums in their order
/// (cuda/ops/norm_row.cuh), a warp takes the parts of several of its warps.
template <typename T>
class NormedInputs {
 public:
  /// Before earlier kernels are done: reads the weights.
  __device__ __forceinline__ explicit NormedInputs(const NormedArguments& args)
      : args_(args), num_warps_(min((args.num_inputs + 127) / 128, 32)) {
    for_all([&](int share, int pass, int column) {
      weight_[share][pass] = read_ahead(args_.norm.weight + column);
      // The L2 cache has lost it since the last layer.
      if (lane() % 2 == 0) fetch_ahead(args_.hidden + column);
    });
  }

  /// Behind them. A barrier of all consumers follows.
  __device__ __forceinline__ void stage(uint32_t inputs, uint32_t scratch, uint32_t row_read) {
    float4 row[kShares][kPasses];
    if (args_.block == nullptr) {
      for_all([&](int share, int pass, int column) {
        row[share][pass] = load_four(args_.hidden + column);
      });
    } else {
      float4 block[kShares][kPasses];
      for_all([&](int share, int pass, int column) {
        block[share][pass] = load_four(static_cast<const T*>(args_.block) + column);
        row[share][pass] = load_four(args_.hidden + column);
      });
      for_all([&](int share, int pass, int column) {
        float4& x = row[share][pass];
        const float4 added = block[share][pass];
        x = {x.x + added.x, x.y + added.y, x.z + added.z, x.w + added.w};
        if (blockIdx.x == 0) store_four(x, args_.sum + column);
      });
    }
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
      float sum = 0;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (!has(share, pass)) continue;
        const float4 x = row[share][pass];
        sum += __fmaf_rn(x.w, x.w, __fmaf_rn(x.z, x.z, __fmaf_rn(x.y, x.y, __fmul_rn(x.x, x.x))));
      }
      sum = warp_sum(sum);
      if (lane() == 0) {
        store_shared_4(scratch + static_cast<uint32_t>(warp_of(share) * 4), __float_as_uint(sum));
      }
    }
    sync_named<kNormedConsumers>(1);
    if (threadIdx.x == 0) arrive(row_read);
    const float part = __uint_as_float(load_shared_4(scratch + static_cast<uint32_t>(lane() * 4)));
    const float sum = warp_sum(lane() < num_warps_ ? part : 0.0f);
    const float variance = __fdiv_rn(sum, static_cast<float>(args_.num_inputs));
    const float inverse = rsqrtf(__fadd_rn(variance, args_.norm.epsilon));
    const auto normed = [&](float x, float w) {
      return __fmul_rn(__fmul_rn(x, inverse), __fadd_rn(w, args_.norm.weight_offset));
    };
    for_all([&](int share, int pass, int column) {
      const float4 x = row[share][pass], w = weight_[share][pass];
      store_shared_8(inputs + static_cast<uint32_t>(column * 2),
                     pair_from_f32<T>(normed(x.x, w.x), normed(x.y, w.y)),
                     pair_from_f32<T>(normed(x.z, w.z), normed(x.w, w.w)));
    });
  }

 private:
  static constexpr int kShares = 32 / kNormedWarps;
  static constexpr int kPasses = kNormedColumnsMax / (4 * 1024);

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int warp_of(int share) {
    return static_cast<int>(threadIdx.x) / 32 + share * kNormedWarps;
  }
  __device__ __forceinline__ int column_of(int share, int pass) const {
    return 4 * (warp_of(share) * 32 + lane() + pass * num_warps_ * 32);
  }
  __device__ __forceinline__ bool has(int share, int pass) const {
    return warp_of(share) < num_warps_ && column_of(share, pass) < args_.num_inputs;
  }
  template <typename Body>
  __device__ __forceinline__ void for_all(const Body& body) const {
#pragma unroll
    for (int share = 0; share < kShares; ++share) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if (has(share, pass)) body(share, pass, column_of(share, pass));
      }
    }
  }

  const NormedArguments& args_;
  const int num_warps_;  // of norm_threads()
  float4 weight_[kShares][kPasses];
};

/// The products of the first warpgroup.
template <class Type, typename T, int kStrips>
class NormedConsumer {
 public:
  __device__ __forceinline__ NormedConsumer(const NormedArguments& args, const NormedRing& ring)
      : args_(args), ring_(ring), inputs_(ring.base + static_cast<uint32_t>(args.plan.inputs)) {}

  __device__ __forceinline__ void run() {
    for (int tile = static_cast<int>(blockIdx.x); tile < args_.plan.num_tiles;
         tile += static_cast<int>(gridDim.x)) {
      float sums[kStrips][4];
      multiply(sums);
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
    if (lane() == 0) arrive(ring_.empty(stage));
  }

  __device__ __forceinline__ void multiply(float (&sums)[kStrips][4]) {
    const NormedPlan& plan = args_.plan;
    const uint64_t w_chunk = static_cast<uint64_t>(plan.strip_rows * kStreamedChunkBytes) >> 4;
    StreamedStage stage = stage_;
    int previous = -1;
    uint64_t x = kInputs | descriptor_of(inputs_);
#pragma unroll 1
    for (int chunk = 0; chunk < plan.num_chunks; chunk += plan.stage_chunks) {
      const int count = min(plan.stage_chunks, plan.num_chunks - chunk);
#pragma unroll
      for (int i = 0; i < kStrips; ++i) {
        wait_barrier(ring_.full(stage.index), stage.parity);
        const uint64_t w = kWeights | descriptor_of(ring_.weights(stage.index));
#pragma unroll 1
        for (int c = 0; c < count; ++c) {
          fence_products();
#pragma unroll
          for (int step = 0; step < kStreamedChunkBytes / 32; ++step) {
            Type::template multiply<8>(sums[i], w + c * w_chunk + step * 2,
                                       x + c * (kStreamedChunkBytes >> 4) + step * 2,
                                       step > 0 || c > 0 || chunk > 0 ? 1 : 0);
          }
          close_products();
          wait_for_products<1>();
          if (c == 0 && previous >= 0) release(previous);
        }
        previous = stage.index;
        stage.advance(ring_.num_stages);
      }
      x += static_cast<uint64_t>(count * (kStreamedChunkBytes >> 4));
    }
    wait_for_products<0>();
    // The compiler may not use sums before that.
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(sums[i][e])::"memory");
    }
    release(previous);
    stage_ = stage;
  }

  __device__ __forceinline__ T rounded(float sum, int output) const {
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
  StreamedStage stage_;
};

template <class Type, typename T>
__global__ void __launch_bounds__(kNormedThreads, 1)
    normed_kernel(const __grid_constant__ CUtensorMap map,
                  const __grid_constant__ NormedArguments args) {
  extern __shared__ uint4 shared_memory[];
  NormedRing ring;
  ring.base = (shared_address_of(shared_memory) + 1023) & ~1023u;
  ring.barriers = ring.base + static_cast<uint32_t>(args.plan.barriers);
  ring.stage_bytes = args.plan.stage_bytes;
  ring.num_stages = args.plan.num_stages;
  if (threadIdx.x == kNormedConsumers) {
    for (int stage = 0; stage < ring.num_stages; ++stage) {
      init_barrier(ring.full(stage), 1);
      init_barrier(ring.empty(stage), kNormedProductWarps);
    }
    init_barrier(ring.row_read(), 1);
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= kNormedConsumers) {
    if (threadIdx.x == kNormedConsumers) {
      copy_normed_weights(map, args, ring);
      // Not earlier: blocks of the next kernel would take this one's share of the bandwidth.
      let_next_kernel_start();
    }
    return;
  }
  NormedInputs<T> inputs(args);
  wait_for_earlier_kernels();
  inputs.stage(ring.base + static_cast<uint32_t>(args.plan.inputs),
               ring.base + static_cast<uint32_t>(args.plan.scratch), ring.row_read());
  publish_to_copies();
  sync_named<kNormedConsumers>(1);
  if (threadIdx.x >= kNormedProductWarps * 32) return;
  if (args.plan.strips == 1) {
    NormedConsumer<Type, T, 1>(args, ring).run();
  } else if (args.plan.strips == 2) {
    NormedConsumer<Type, T, 2>(args, ring).run();
  } else {
    NormedConsumer<Type, T, 4>(args, ring).run();
  }
}

/// See normed_arguments.h.
template <class Type, typename T>
void launch_normed_of(const CudaContext& context, const CUtensorMap& map,
                      const NormedArguments& args) {
  const auto kernel = normed_kernel<Type, T>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  args.plan.num_bytes),
             "shared memory of normed_gemm");
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "shared memory of normed_gemm");
  launch_early(context, "normed_gemm",
               {.grid = dim3(static_cast<unsigned>(args.plan.num_blocks)),
                .block = dim3(kNormedThreads),
                .shared_bytes = static_cast<size_t>(args.plan.num_bytes)},
               kernel, map, args);
}

}  // namespace halley::cuda
