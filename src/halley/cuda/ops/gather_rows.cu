#include <algorithm>

#include "halley/base/check.h"
#include "halley/cuda/ops/gather_rows.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;
/// A grid has enough for all SMs several times over.
constexpr int64_t kCtasMax = 132 * 16;

/// Copies a row's bits as units of as many bytes as all rows are aligned to. Strides are in units:
/// of x, of y.
template <typename Unit>
__global__ void gather_kernel(const Unit* x, Unit* y, const int32_t* rows, int64_t num_rows,
                              int64_t row_units, longlong2 strides) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < num_rows * row_units; i += step) {
    const int64_t row = i / row_units, unit = i % row_units;
    y[row * strides.y + unit] = x[rows[row] * strides.x + unit];
  }
}

int64_t bytes_of(const ConstMatrix& x, int64_t elements) { return elements * bits_of(x.dtype) / 8; }

bool is_in_units(const ConstMatrix& x, int64_t unit_bytes) {
  return bytes_of(x, x.num_cols) % unit_bytes == 0 && bytes_of(x, x.row_stride) % unit_bytes == 0 &&
         reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(unit_bytes) == 0;
}

template <typename Unit>
bool gather_in(const CudaContext& context, ConstMatrix x, const int32_t* rows, Matrix y) {
  constexpr int64_t kBytes = sizeof(Unit);
  if (!is_in_units(x, kBytes) || !is_in_units(y, kBytes)) return false;
  const int64_t row_units = bytes_of(x, x.num_cols) / kBytes;
  const longlong2 strides = {bytes_of(x, x.row_stride) / kBytes,
                             bytes_of(y, y.row_stride) / kBytes};
  const int64_t ctas = std::min((y.num_rows * row_units + kThreads - 1) / kThreads, kCtasMax);
  launch_kernel(context, "gather rows",
                {.grid = dim3(static_cast<unsigned>(ctas)), .block = dim3(kThreads)},
                gather_kernel<Unit>, reinterpret_cast<const Unit*>(x.data),
                reinterpret_cast<Unit*>(y.data), rows, y.num_rows, row_units, strides);
  return true;
}

}  // namespace

void gather_rows(const CudaContext& context, ConstMatrix x, const int32_t* rows, Matrix y) {
  HALLEY_CHECK(x.num_cols == y.num_cols && x.dtype == y.dtype && bits_of(x.dtype) % 8 == 0,
               x.num_cols, y.num_cols, x.dtype, y.dtype);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  if (gather_in<uint4>(context, x, rows, y)) return;
  if (gather_in<uint32_t>(context, x, rows, y)) return;
  if (gather_in<uint16_t>(context, x, rows, y)) return;
  HALLEY_CHECK(gather_in<uint8_t>(context, x, rows, y), x.row_stride, y.row_stride);
}

}  // namespace halley::cuda
