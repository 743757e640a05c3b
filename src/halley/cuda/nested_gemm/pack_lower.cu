#include <algorithm>

#include <cuda_runtime.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/runtime/cuda_check.h"

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

}  // namespace

void pack_lower_rows(const CudaContext& context, ConstMatrix rows, int64_t first_row,
                     const NestedWeight& weight) {
  HALLEY_CHECK(bits_of(rows.dtype) == 8 && rows.num_cols == weight.K(), rows.dtype, rows.num_cols);
  HALLEY_CHECK(first_row >= 0 && first_row + rows.num_rows <= weight.N(), first_row, rows.num_rows,
               weight.N());
  constexpr int64_t kRowsMax = 65535;  // of a grid
  for (int64_t begin = 0; begin < rows.num_rows; begin += kRowsMax) {
    const ConstMatrix some = rows.rows(begin, std::min(begin + kRowsMax, rows.num_rows));
    const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(rows.num_cols, kPackThreads)),
                    static_cast<unsigned>(some.num_rows));
    pack_lower_kernel<<<grid, kPackThreads, 0, context.stream.get()>>>(
        reinterpret_cast<const uint8_t*>(some.data), some.row_stride, first_row + begin,
        static_cast<int>(rows.num_cols), reinterpret_cast<uint8_t*>(weight.lower.data()));
    check_cuda(cudaGetLastError(), "launch of pack_lower_rows");
  }
}

}  // namespace halley::cuda
