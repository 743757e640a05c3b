#include <cstdint>

#include "halley/base/check.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ops/first_rows.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/device_span.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__device__ float4 row_vec4(ConstMatrix table, int64_t row, int column) {
  return load_vec4(reinterpret_cast<const T*>(table.data) + row * table.row_stride + column);
}

template <typename T>
__device__ float row_one(ConstMatrix table, int64_t row, int column) {
  return to_f32(reinterpret_cast<const T*>(table.data)[row * table.row_stride + column]);
}

struct Target {
  float* hidden;
  int64_t stride;
  int num_columns;
  bool is_vec4_aligned;
};

/// hidden: [M, K] f32 row-major;  table: [V, K] row-major;  cos, sin: [M, num_angles] f32. One CTA
/// a row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    first_rows_kernel(const __grid_constant__ FirstRows rows, Target target) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int64_t m = blockIdx.x;
  const auto thread = static_cast<int>(threadIdx.x);
  if (rows.span != nullptr && m == 0 && thread == 0) begin_span(*rows.span);
  int64_t id = rows.ids[m];
  if (id < 0) id = rows.last_tokens[-1 - id];
  id -= rows.first_id;
  const bool is_here = id >= 0 && id < rows.table.num_rows;
  const bool has_positions = rows.position_rows != nullptr;
  const int64_t position_row = has_positions ? rows.position_rows[m] : 0;
  float* hidden = target.hidden + m * target.stride;
  if (target.is_vec4_aligned) {
    for (int column = 4 * thread; column < target.num_columns; column += 4 * kThreads) {
      float4 x = is_here ? row_vec4<T>(rows.table, id, column) : float4{0, 0, 0, 0};
      x = {__fmul_rn(x.x, rows.scale), __fmul_rn(x.y, rows.scale), __fmul_rn(x.z, rows.scale),
           __fmul_rn(x.w, rows.scale)};
      if (has_positions) {
        const float4 y = row_vec4<T>(rows.position_table, position_row, column);
        x = {__fadd_rn(x.x, y.x), __fadd_rn(x.y, y.y), __fadd_rn(x.z, y.z), __fadd_rn(x.w, y.w)};
      }
      store_vec4(x, hidden + column);
    }
  } else {
    for (int column = thread; column < target.num_columns; column += kThreads) {
      float x = is_here ? __fmul_rn(row_one<T>(rows.table, id, column), rows.scale) : 0.0f;
      if (has_positions) x = __fadd_rn(x, row_one<T>(rows.position_table, position_row, column));
      hidden[column] = x;
    }
  }
  for (int rope = 0; rope < rows.num_ropes; ++rope) {
    const auto& [table, cos, sin] = rows.ropes[static_cast<size_t>(rope)];
    const auto num_angles = static_cast<int>(table.num_angles);
    const auto position = static_cast<float>(rows.positions[m]);
    for (int i = thread; i < num_angles; i += kThreads) {
      const float angle = position * table.inv_freq[i];
      // cosf and sinf, not __cosf and __sinf: angles grow up to the context length.
      cos[m * num_angles + i] = cosf(angle) * table.attention_factor;
      sin[m * num_angles + i] = sinf(angle) * table.attention_factor;
    }
  }
}

bool is_vec4_aligned(ConstMatrix x) {
  const auto bytes = static_cast<uintptr_t>(bits_of(x.dtype) / 2);  // of a vector of 4
  return x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % bytes == 0;
}

}  // namespace

void first_rows(const CudaContext& context, const FirstRows& rows, Matrix hidden) {
  HALLEY_CHECK(rows.table.num_cols == hidden.num_cols && hidden.dtype == DType::kF32,
               rows.table.num_cols, hidden.num_cols);
  HALLEY_CHECK(rows.num_ropes >= 0 && rows.num_ropes <= FirstRows::kNumRopesMax, rows.num_ropes);
  const bool has_positions = rows.position_rows != nullptr;
  HALLEY_CHECK(!has_positions || (rows.position_table.num_cols == hidden.num_cols &&
                                  rows.position_table.dtype == rows.table.dtype),
               rows.position_table.num_cols, name_of(rows.position_table.dtype));
  if (hidden.num_rows == 0) return;
  const Target target = {
      .hidden = hidden.row<float>(0),
      .stride = hidden.row_stride,
      .num_columns = static_cast<int>(hidden.num_cols),
      .is_vec4_aligned = hidden.num_cols % 4 == 0 && is_vec4_aligned(rows.table) &&
                         is_vec4_aligned(hidden) &&
                         (!has_positions || is_vec4_aligned(rows.position_table))};
  with_float_type(rows.table.dtype, [&](auto type) {
    launch_kernel(context, "first rows",
                  {.grid = dim3(static_cast<unsigned>(hidden.num_rows)), .block = dim3(kThreads)},
                  first_rows_kernel<typename decltype(type)::type>, rows, target);
  });
}

}  // namespace halley::cuda
