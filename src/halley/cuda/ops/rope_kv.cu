#include <cstdint>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/kv_row.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/ops/rope_kv.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kWarpsPerCta = 8;
/// Elements of a head that one thread of its warp holds.
constexpr int kElementsMax = static_cast<int>(kRopeHeadDimMax) / kWarpThreads;

/// The head that a warp works on: thread i % 32 holds element i.
struct WarpHead {
  int64_t m;
  int head_dim, lane;
  float* x;    // [kElementsMax] of each thread
  float* row;  // [head_dim] in shared memory
};

struct HeadShape {
  int num_rows, head_dim, num_heads, num_kv_heads;
  int64_t row_stride;
};

/// Norm (weight null: none), then rotation.
__device__ void transform_head(const RopeKvParams& params, const float* weight,
                               const WarpHead& head) {
  float* x = head.x;
  const auto column_of = [&](int i) { return i * kWarpThreads + head.lane; };
  if (weight != nullptr) {
    float sum = 0;
    for (int i = 0; i < kElementsMax; ++i) {
      if (column_of(i) < head.head_dim) sum += x[i] * x[i];
    }
    const float mean = warp_sum(sum) / static_cast<float>(head.head_dim);
    const float inverse = rsqrtf(mean + params.epsilon);
    for (int i = 0; i < kElementsMax; ++i) {
      const int column = column_of(i);
      if (column < head.head_dim) x[i] = x[i] * inverse * (weight[column] + params.weight_offset);
    }
  }
  const int half = static_cast<int>(params.num_angles);
  if (half == 0) return;
  for (int i = 0; i < kElementsMax; ++i) {
    if (column_of(i) < head.head_dim) head.row[column_of(i)] = x[i];
  }
  __syncwarp();
  const float* cos = params.cos + head.m * half;
  const float* sin = params.sin + head.m * half;
  for (int i = 0; i < kElementsMax; ++i) {
    const int column = column_of(i);
    if (params.is_interleaved) {
      if (column >= 2 * half) continue;
      const float turned = head.row[column ^ 1] * sin[column / 2];
      x[i] = x[i] * cos[column / 2] + (column % 2 == 0 ? -turned : turned);
    } else if (column < half) {
      x[i] = x[i] * cos[column] - head.row[column + half] * sin[column];
    } else if (column < 2 * half) {
      x[i] = x[i] * cos[column - half] + head.row[column - half] * sin[column - half];
    }
  }
  __syncwarp();
}

/// Any sizes and alignment. One warp for each head of each row: queries, then keys, then values.
template <typename T>
__global__ void rope_kv_kernel(RopeKvParams params, KvCacheArgs kv, HeadShape shape, T* qkv) {
  __shared__ float rows[kWarpsPerCta][kRopeHeadDimMax];
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int heads_per_row = shape.num_heads + 2 * shape.num_kv_heads;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarpsPerCta + warp;
  if (item >= static_cast<int64_t>(shape.num_rows) * heads_per_row) return;
  const int64_t m = item / heads_per_row;
  const int head = static_cast<int>(item % heads_per_row);
  T* from = qkv + m * shape.row_stride + static_cast<int64_t>(head) * shape.head_dim;
  float x[kElementsMax];
  for (int i = 0; i < kElementsMax; ++i) {
    const int column = i * kWarpThreads + lane;
    x[i] = column < shape.head_dim ? to_f32(from[column]) : 0.0f;
  }
  const bool is_query = head < shape.num_heads;
  const bool is_value = head >= shape.num_heads + shape.num_kv_heads;
  if (!is_value) {
    transform_head(params, is_query ? params.q_norm : params.k_norm,
                   {m, shape.head_dim, lane, x, rows[warp]});
  }
  if (is_query) {
    for (int i = 0; i < kElementsMax; ++i) {
      const int column = i * kWarpThreads + lane;
      if (column < shape.head_dim) from[column] = from_f32<T>(x[i]);
    }
    return;
  }
  const int64_t slot = params.kv_slots[m];
  if (slot < 0) return;
  const int kv_row = head - shape.num_heads;  // keys of all heads, then values
  store_kv_row(kv, slot_of(kv, slot), kv_row, WarpRow<kElementsMax>{shape.head_dim, lane, x});
}

constexpr int kVec8Threads = 128;

struct Vec8Shape {
  int head_dim, num_heads, num_kv_heads;
  int log2_threads;    // of a head: head_dim / 16, rounded up to a power of two
  bool is_whole_warp;  // the heads of a warp are all queries, all keys or all values
  bool starts_next;    // griddepcontrol.launch_dependents before the main loop
  int64_t row_stride;
};

/// A thread's share of a row: its two vectors of 8 elements and their angles. Elements i and i +
/// num_angles of the rotated part are in the same thread.
struct Vec8HeadRow {
  Vec8Row row;
  bool is_rotated;
  float cos[8], sin[8];
};

__device__ inline Vec8HeadRow vec8_head_row(const RopeKvParams& params, const Vec8Shape& shape,
                                            int64_t m, const float* x) {
  const int num_threads = 1 << shape.log2_threads;
  const int thread = static_cast<int>(threadIdx.x) % num_threads;
  const int half = static_cast<int>(params.num_angles);
  Vec8HeadRow vec8 = {};
  vec8.is_rotated = thread * 8 < half;
  const int behind = 2 * half + 16 * (thread - half / 8);
  const int first = vec8.is_rotated ? thread * 8 : behind;
  const int second = vec8.is_rotated ? half + thread * 8 : behind + 8;
  const bool has_any = thread * 16 < shape.head_dim;
  vec8.row = {num_threads, thread, has_any, shape.is_whole_warp, {first, second}, x};
  if (vec8.is_rotated) {
    load_vec8(params.cos + m * half + thread * 8, vec8.cos);
    load_vec8(params.sin + m * half + thread * 8, vec8.sin);
  }
  return vec8;
}

/// Prefetches the row's angles and its KV slot, which the step's first kernels wrote, to L2.
__device__ inline void fetch_of_row(const RopeKvParams& params, int64_t m) {
  constexpr int kFloats = ptx::kL2SectorBytes / static_cast<int>(sizeof(float));
  const int thread = static_cast<int>(threadIdx.x), half = static_cast<int>(params.num_angles);
  if (thread * kFloats < half) {
    ptx::prefetch_global_l2(params.cos + m * half + thread * kFloats);
    ptx::prefetch_global_l2(params.sin + m * half + thread * kFloats);
  }
  if (thread == 0) ptx::prefetch_global_l2(params.kv_slots + m);
}

/// Norm (weight null: none), then rotation of x [16], by all threads of the head's row.
__device__ inline void transform_vec8(const RopeKvParams& params, const float* weight, int head_dim,
                                      const Vec8HeadRow& vec8, float* x) {
  if (weight != nullptr) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += x[i] * x[i];
    const float mean = vec8.row.sum_of(sum) / static_cast<float>(head_dim);
    const float inverse = rsqrtf(mean + params.epsilon);
    if (vec8.row.has_any) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        float weights[8];
        load_vec8(weight + vec8.row.columns[part], weights);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          x[8 * part + i] = x[8 * part + i] * inverse * (weights[i] + params.weight_offset);
        }
      }
    }
  }
  if (!vec8.is_rotated) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float low = x[i], high = x[8 + i];
    // Same roundings as rope_kv_kernel().
    x[i] = __fmaf_rn(low, vec8.cos[i], -__fmul_rn(high, vec8.sin[i]));
    x[8 + i] = __fmaf_rn(high, vec8.cos[i], __fmul_rn(low, vec8.sin[i]));
  }
}

/// qkv: [M, (H + 2 J) * D] row-major f16 or bf16. blockIdx.x selects the row; its heads are spread
/// over the threads of the CTAs of blockIdx.y. A head has D / 16 threads with 16 elements each, the
/// same columns in all heads.
template <typename T>
__global__ void __launch_bounds__(kVec8Threads, 7)
    rope_kv_vec8_kernel(const __grid_constant__ RopeKvParams params,
                        const __grid_constant__ KvCacheArgs kv, Vec8Shape shape, T* qkv) {
  if (shape.starts_next) ptx::griddepcontrol_launch_dependents();
  const int64_t m = blockIdx.x;
  const int heads_per_row = shape.num_heads + 2 * shape.num_kv_heads;
  const int heads_per_cta = kVec8Threads >> shape.log2_threads;
  const int step = static_cast<int>(gridDim.y) * heads_per_cta;
  int head = static_cast<int>(blockIdx.y) * heads_per_cta +
             static_cast<int>(threadIdx.x >> shape.log2_threads);
  if (head >= heads_per_row) return;
  fetch_of_row(params, m);
  ptx::griddepcontrol_wait();
  float x[16] = {};
  const Vec8HeadRow vec8 = vec8_head_row(params, shape, m, x);
  const int64_t slot = params.kv_slots[m];
  const auto data_of = [&](int of_head) {
    return qkv + m * shape.row_stride + static_cast<int64_t>(of_head) * shape.head_dim;
  };
  Vec8<T> parts[2] = {};
  const auto load = [&](int of_head) {
    if (!vec8.row.has_any) return;
    const T* from = data_of(of_head);
    parts[0].load(from + vec8.row.columns[0]);
    parts[1].load(from + vec8.row.columns[1]);
  };
  load(head);
  const bool is_stored = slot >= 0;
  const KvSlot kv_slot = slot_of(kv, is_stored ? slot : 0);
  for (; head < heads_per_row; head += step) {
    parts[0].unpack(x);
    parts[1].unpack(x + 8);
    if (head + step < heads_per_row) load(head + step);  // in flight while this head is processed
    const bool is_query = head < shape.num_heads;
    const bool is_value = head >= shape.num_heads + shape.num_kv_heads;
    if (!is_value) {
      transform_vec8(params, is_query ? params.q_norm : params.k_norm, shape.head_dim, vec8, x);
    }
    if (is_query) {
      vec8.row.store_as<T>(reinterpret_cast<std::byte*>(data_of(head)));
    } else if (is_stored) {
      store_kv_row(kv, kv_slot, head - shape.num_heads, vec8.row);
    }
  }
}

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

bool is_vec8_aligned(const RopeKvParams& params, const KvLayerView& cache, ConstMatrix qkv) {
  return bits_of(qkv.dtype) == 16 && qkv.row_stride % 8 == 0 && is_aligned(qkv.data) &&
         !params.is_interleaved && params.num_angles % 8 == 0 && is_aligned(params.cos) &&
         is_aligned(params.sin) && is_aligned(params.q_norm) && is_aligned(params.k_norm) &&
         takes_vec8(cache);
}

template <typename T>
void launch_vec8(const CudaContext& context, const RopeKvParams& params, const KvCacheArgs& kv,
                 const HeadShape& shape, T* qkv) {
  constexpr int kCtasPerSm = 8;
  Vec8Shape vec8 = {.head_dim = shape.head_dim,
                    .num_heads = shape.num_heads,
                    .num_kv_heads = shape.num_kv_heads,
                    .log2_threads = 0,
                    .is_whole_warp = false,
                    .starts_next = false,
                    .row_stride = shape.row_stride};
  while ((16 << vec8.log2_threads) < shape.head_dim) ++vec8.log2_threads;
  const int heads_per_warp = kWarpThreads >> vec8.log2_threads;
  vec8.is_whole_warp =
      shape.num_heads % heads_per_warp == 0 && shape.num_kv_heads % heads_per_warp == 0;
  const int heads_per_cta = kVec8Threads >> vec8.log2_threads;
  // With small M several CTAs share a row.
  const int64_t ctas_max = ceil_div(shape.num_heads + 2 * shape.num_kv_heads, heads_per_cta);
  const bool shares_rows =
      shape.num_rows * ctas_max <= context.device.num_sms * int64_t{kCtasPerSm};
  // If this kernel occupies many SMs, CTAs of attention that PDL starts now are placed unevenly:
  // without PDL here a decode step of 64 rows was 2.4 % faster on an H200.
  vec8.starts_next = shape.num_rows * ctas_max * 4 <= context.device.num_sms;
  launch_kernel(context, "rope and KV write",
                {.grid = dim3(static_cast<unsigned>(shape.num_rows),
                              static_cast<unsigned>(shares_rows ? ctas_max : 1)),
                 .block = dim3(kVec8Threads)},
                rope_kv_vec8_kernel<T>, params, kv, vec8, qkv);
}

}  // namespace

void rope_and_write_kv(const CudaContext& context, const RopeKvParams& params,
                       const KvLayerView& cache, Matrix qkv) {
  const KvPageLayout& layout = cache.layout;
  const int64_t D = layout.head_dim, J = layout.num_kv_heads;
  HALLEY_CHECK(D >= 2 && D <= kRopeHeadDimMax && D % 2 == 0, D);
  HALLEY_CHECK(2 * params.num_angles <= D, params.num_angles, D);
  HALLEY_CHECK(qkv.num_cols == (params.num_heads + 2 * J) * D, qkv.num_cols, params.num_heads, J,
               D);
  if (qkv.num_rows == 0) return;
  const HeadShape shape = {.num_rows = static_cast<int>(qkv.num_rows),
                           .head_dim = static_cast<int>(D),
                           .num_heads = static_cast<int>(params.num_heads),
                           .num_kv_heads = static_cast<int>(J),
                           .row_stride = qkv.row_stride};
  const int64_t num_items = qkv.num_rows * (params.num_heads + 2 * J);
  const auto num_ctas = static_cast<unsigned>((num_items + kWarpsPerCta - 1) / kWarpsPerCta);
  const KvCacheArgs kv = kv_cache_args(cache);
  with_float_type(qkv.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (sizeof(T) == 2) {
      if (is_vec8_aligned(params, cache, qkv)) {
        launch_vec8(context, params, kv, shape, reinterpret_cast<T*>(qkv.data));
        return;
      }
    }
    launch_kernel(context, "rope and KV write",
                  {.grid = dim3(num_ctas), .block = dim3(kWarpsPerCta * kWarpThreads)},
                  rope_kv_kernel<T>, params, kv, shape, reinterpret_cast<T*>(qkv.data));
  });
}

}  // namespace halley::cuda
