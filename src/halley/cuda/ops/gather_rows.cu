#include "halley/base/check.h"
#include "halley/cuda/ops/gather_rows.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kThreads = 256;

/// Copies a row's bits as `Word`s.
template <typename Word>
__global__ void gather_kernel(const Word* x, int64_t x_stride, const int32_t* rows, int num_words,
                              int64_t y_stride, Word* y) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int64_t i = blockIdx.x;
  const Word* from = x + rows[i] * x_stride;
  Word* to = y + i * y_stride;
  for (int word = static_cast<int>(threadIdx.x); word < num_words; word += kThreads) {
    to[word] = from[word];
  }
}

template <typename Word>
void gather_words(const CudaContext& context, ConstMatrix x, const int32_t* rows, Matrix y) {
  launch_kernel(context, "gather rows",
                {.grid = dim3(static_cast<unsigned>(y.num_rows)), .block = dim3(kThreads)},
                gather_kernel<Word>, reinterpret_cast<const Word*>(x.data), x.row_stride, rows,
                static_cast<int>(y.num_cols), y.row_stride, reinterpret_cast<Word*>(y.data));
}

}  // namespace

void gather_rows(const CudaContext& context, ConstMatrix x, const int32_t* rows, Matrix y) {
  HALLEY_CHECK(x.num_cols == y.num_cols && x.dtype == y.dtype, x.num_cols, y.num_cols);
  HALLEY_CHECK(bits_of(x.dtype) == 16 || bits_of(x.dtype) == 32, name_of(x.dtype));
  if (y.num_rows == 0) return;
  if (bits_of(x.dtype) == 16) {
    gather_words<uint16_t>(context, x, rows, y);
  } else {
    gather_words<uint32_t>(context, x, rows, y);
  }
}

}  // namespace halley::cuda
