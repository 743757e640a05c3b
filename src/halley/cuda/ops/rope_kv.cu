#include "halley/base/check.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/kv_row.cuh"
#include "halley/cuda/ops/reduce.cuh"
#include "halley/cuda/ops/rope_kv.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/early_launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kWarpsOfBlock = 8;
/// Elements of a head that one thread of its warp holds.
constexpr int kElementsMax = static_cast<int>(kRopeHeadDimMax) / kWarpThreads;

__global__ void angles_kernel(RopeTable table, const int32_t* positions, float* cos, float* sin) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int64_t m = blockIdx.x;
  const auto position = static_cast<float>(positions[m]);
  const int num_angles = static_cast<int>(table.num_angles);
  for (int i = static_cast<int>(threadIdx.x); i < num_angles; i += static_cast<int>(blockDim.x)) {
    const float angle = position * table.inv_freq[i];
    // Not the fast forms: angles reach the length of the context.
    cos[m * num_angles + i] = cosf(angle) * table.attention_factor;
    sin[m * num_angles + i] = sinf(angle) * table.attention_factor;
  }
}

/// The head that a warp works on: element i in thread i % 32, and room for all of it.
struct WarpHead {
  int64_t m;
  int head_dim, lane;
  float* x;    // [kElementsMax], of each thread
  float* row;  // [head_dim] in shared memory
};

struct HeadShape {
  int num_rows, head_dim, num_heads, num_kv_heads;
  int64_t row_stride;
};

/// Norm (weight null: none) and rotation.
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
    if (column < half) {
      x[i] = x[i] * cos[column] - head.row[column + half] * sin[column];
    } else if (column < 2 * half) {
      x[i] = x[i] * cos[column - half] + head.row[column - half] * sin[column - half];
    }
  }
  __syncwarp();
}

/// One warp for each head of each row: queries, then keys, then values.
template <typename T>
__global__ void rope_kv_kernel(RopeKvParams params, KvPlace place, HeadShape shape, T* qkv) {
  __shared__ float rows[kWarpsOfBlock][kRopeHeadDimMax];
  let_next_kernel_start();
  wait_for_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int heads_of_row = shape.num_heads + 2 * shape.num_kv_heads;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + warp;
  if (item >= static_cast<int64_t>(shape.num_rows) * heads_of_row) return;
  const int64_t m = item / heads_of_row;
  const int head = static_cast<int>(item % heads_of_row);
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
  store_kv_row(place, slot, kv_row, WarpRow<kElementsMax>{shape.head_dim, lane, x});
}

}  // namespace

void compute_rope_angles(const CudaContext& context, const RopeTable& table,
                         const int32_t* positions, int64_t num_rows, float* cos, float* sin) {
  if (num_rows == 0 || table.num_angles == 0) return;
  constexpr int kThreads = 64;
  launch_early(context, "rotary angles",
               {.grid = dim3(static_cast<unsigned>(num_rows)), .block = dim3(kThreads)},
               angles_kernel, table, positions, cos, sin);
}

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
  const auto num_blocks = static_cast<unsigned>((num_items + kWarpsOfBlock - 1) / kWarpsOfBlock);
  const KvPlace place = place_of(cache);
  with_float_type(qkv.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch_early(context, "rope and KV write",
                 {.grid = dim3(num_blocks), .block = dim3(kWarpsOfBlock * kWarpThreads)},
                 rope_kv_kernel<T>, params, place, shape, reinterpret_cast<T*>(qkv.data));
  });
}

}  // namespace halley::cuda
