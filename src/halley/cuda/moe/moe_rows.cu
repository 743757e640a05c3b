#include <algorithm>

#include "halley/base/check.h"
#include "halley/cuda/moe/moe_rows.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
/// Of a grid: enough for all SMs several times over.
constexpr int64_t kBlocksMax = 132 * 16;

LaunchShape shape_for(int64_t num_items) {
  const int64_t blocks = std::min((num_items + kThreads - 1) / kThreads, kBlocksMax);
  return {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)};
}

__device__ int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ int64_t item_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

struct CombineParams {
  const int32_t* row_slots;
  const float* weight_of;
  int64_t num_chosen;
  int64_t num_rows, num_columns, slots_stride, y_stride;
};

__device__ float4 scaled(float weight, float4 x) {
  return {__fmul_rn(weight, x.x), __fmul_rn(weight, x.y), __fmul_rn(weight, x.z),
          __fmul_rn(weight, x.w)};
}

__device__ float4 sum_of(float4 a, float4 b) {
  return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)};
}

/// kStep columns at a time: 4 or 1.
template <typename From, typename To, int kStep>
__global__ void combine_kernel(const __grid_constant__ CombineParams params, const From* slots,
                               To* y) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t steps = params.num_columns / kStep;
  for (int64_t item = first_item(); item < params.num_rows * steps; item += item_step()) {
    const int64_t m = item / steps, column = item % steps * kStep;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 4
    for (int64_t i = 0; i < params.num_chosen; ++i) {
      const int64_t at = m * params.num_chosen + i;
      const From* from = slots + params.row_slots[at] * params.slots_stride + column;
      float4 value;
      if constexpr (kStep == 4) {
        value = load_vec4(from);
      } else {
        value = {to_f32(*from), 0, 0, 0};
      }
      const float4 term = scaled(params.weight_of[at], value);
      sum = i == 0 ? term : sum_of(sum, term);
    }
    To* to = y + m * params.y_stride + column;
    if constexpr (kStep == 4) {
      store_vec4(sum, to);
    } else {
      *to = from_f32<To>(sum.x);
    }
  }
}

bool is_in_fours(ConstMatrix x) {
  const int64_t unit_bytes = 4 * bits_of(x.dtype) / 8;
  return x.num_cols % 4 == 0 && x.row_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(unit_bytes) == 0;
}

}  // namespace

void combine_rows(const CudaContext& context, const DeviceRouting& routing, ConstMatrix slots,
                  Matrix y) {
  HALLEY_CHECK(y.num_rows == routing.num_rows && slots.num_rows == routing.num_slots() &&
                   y.num_cols == slots.num_cols,
               y.num_rows, routing.num_rows, slots.num_rows, y.num_cols, slots.num_cols);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const CombineParams params = {.row_slots = routing.row_slots,
                                .weight_of = routing.weight_of,
                                .num_chosen = routing.num_experts_per_token,
                                .num_rows = y.num_rows,
                                .num_columns = y.num_cols,
                                .slots_stride = slots.row_stride,
                                .y_stride = y.row_stride};
  with_float_type(slots.dtype, [&](auto from_type) {
    with_float_type(y.dtype, [&](auto to_type) {
      using From = typename decltype(from_type)::type;
      using To = typename decltype(to_type)::type;
      const auto* from = reinterpret_cast<const From*>(slots.data);
      auto* to = reinterpret_cast<To*>(y.data);
      const bool is_four = is_in_fours(slots) && is_in_fours(y);
      launch_kernel(context, "weighted sum of experts",
                    shape_for(y.num_rows * y.num_cols / (is_four ? 4 : 1)),
                    is_four ? combine_kernel<From, To, 4> : combine_kernel<From, To, 1>, params,
                    from, to);
    });
  });
}

}  // namespace halley::cuda
