#include <algorithm>

#include <cuda_runtime.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kPackThreads = 256;

/// One thread for one byte.
__global__ void __launch_bounds__(kPackThreads)
    pack_lower_kernel(const uint8_t* rows, int64_t row_stride, int64_t first_row, int num_cols,
                      uint8_t* chunks) {
  const int k = static_cast<int>(blockIdx.x * kPackThreads + threadIdx.x);
  if (k >= num_cols) return;
  const int64_t row = blockIdx.y, n = first_row + row;
  const int num_chunks = (num_cols + kNestedInputs - 1) / kNestedInputs;
  const int64_t chunk = n / kTileOutputs * num_chunks + k / kNestedInputs;
  chunks[chunk * kNestedChunkBytes + lower_offset(static_cast<int>(n % kTileOutputs),
                                                  k % kNestedInputs)] = rows[row * row_stride + k];
}

/// A warp puts 128 bytes of a row in order, in place: a lane has four of them.
__global__ void __launch_bounds__(kPackThreads)
    order_upper_kernel(uint8_t* rows, int64_t row_stride, int num_chunks) {
  const int chunk = static_cast<int>(blockIdx.x * (kPackThreads / 32) + threadIdx.x / 32);
  if (chunk >= num_chunks) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint8_t* bytes = rows + int64_t{blockIdx.y} * row_stride + chunk * kLaneInputs;
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= uint32_t{bytes[lane_input(4 * lane + i)]} << (8 * i);
  __syncwarp();
  reinterpret_cast<uint32_t*>(bytes)[lane] = word;
}

constexpr int64_t kRowsMax = 65535;  // of a grid

}  // namespace

void order_upper_rows(const CudaContext& context, Matrix rows) {
  HALLEY_CHECK(rows.dtype == DType::kF8E4M3 && rows.num_cols % kLaneInputs == 0, rows.dtype,
               rows.num_cols);
  HALLEY_CHECK(has_wide_rows(rows), rows.row_stride);
  const auto num_chunks = static_cast<int>(rows.num_cols / kLaneInputs);
  for (int64_t begin = 0; begin < rows.num_rows; begin += kRowsMax) {
    const Matrix some = rows.rows(begin, std::min(begin + kRowsMax, rows.num_rows));
    const dim3 grid(static_cast<unsigned>(ceil_div(num_chunks, kPackThreads / 32)),
                    static_cast<unsigned>(some.num_rows));
    launch_kernel(context, "order_upper_rows",
                  {.grid = grid, .block = dim3(kPackThreads), .pdl = false}, order_upper_kernel,
                  reinterpret_cast<uint8_t*>(some.data), some.row_stride, num_chunks);
  }
}

void pack_lower_rows(const CudaContext& context, ConstMatrix rows, int64_t first_row,
                     const NestedWeight& weight) {
  HALLEY_CHECK(bits_of(rows.dtype) == 8 && rows.num_cols == weight.K(), rows.dtype, rows.num_cols);
  HALLEY_CHECK(first_row >= 0 && first_row + rows.num_rows <= weight.N(), first_row, rows.num_rows,
               weight.N());
  for (int64_t begin = 0; begin < rows.num_rows; begin += kRowsMax) {
    const ConstMatrix some = rows.rows(begin, std::min(begin + kRowsMax, rows.num_rows));
    const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(rows.num_cols, kPackThreads)),
                    static_cast<unsigned>(some.num_rows));
    launch_kernel(context, "pack_lower_rows",
                  {.grid = grid, .block = dim3(kPackThreads), .pdl = false}, pack_lower_kernel,
                  reinterpret_cast<const uint8_t*>(some.data), some.row_stride, first_row + begin,
                  static_cast<int>(rows.num_cols), reinterpret_cast<uint8_t*>(weight.lower.data()));
  }
}

}  // namespace halley::cuda
