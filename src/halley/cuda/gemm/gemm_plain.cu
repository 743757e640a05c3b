#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/gemm_plain.h"
#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/gemm/row_scales.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kTile = 32;         // rows, outputs and inputs of a block's tile
constexpr int kThreadRows = 8;    // threads of a block along rows
constexpr int kRowsOfThread = 4;  // kTile / kThreadRows

struct PlainArguments {
  const void* x;
  const void* w;
  void* y;
  int64_t M, N, K;
  int64_t x_stride, w_stride, y_stride;
  DType y_dtype;
  RowScales scales;
  const float* bias;
};

__device__ int load(const int8_t* array, int64_t index) { return array[index]; }
template <typename T>
__device__ float load(const T* array, int64_t index) {
  return to_float(array[index]);
}

__device__ void add_product(int& sum, int x, int w) { sum += x * w; }
__device__ void add_product(float& sum, float x, float w) { sum = fmaf(x, w, sum); }

/// Thread (i, j) computes output n0 + i of rows m0 + j, m0 + j + 8, ...
template <typename T, typename Sum>
__global__ void __launch_bounds__(kTile* kThreadRows)
    gemm_plain_kernel(const __grid_constant__ PlainArguments args) {
  // One more than a tile, so that a column of `ws` lies in all banks.
  __shared__ Sum xs[kTile][kTile + 1];
  __shared__ Sum ws[kTile][kTile + 1];
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const auto* x = static_cast<const T*>(args.x);
  const auto* w = static_cast<const T*>(args.w);
  const int i = static_cast<int>(threadIdx.x), j = static_cast<int>(threadIdx.y);
  const int64_t n0 = int64_t{blockIdx.x} * kTile;
  for (int64_t m0 = int64_t{blockIdx.y} * kTile; m0 < args.M; m0 += int64_t{gridDim.y} * kTile) {
    Sum sums[kRowsOfThread] = {};
    for (int64_t k0 = 0; k0 < args.K; k0 += kTile) {
      const int64_t k = k0 + i;
      for (int row = j; row < kTile; row += kThreadRows) {
        const bool has_x = m0 + row < args.M && k < args.K;
        const bool has_w = n0 + row < args.N && k < args.K;
        xs[row][i] = has_x ? load(x, (m0 + row) * args.x_stride + k) : Sum{0};
        ws[row][i] = has_w ? load(w, (n0 + row) * args.w_stride + k) : Sum{0};
      }
      __syncthreads();
      const int num_inputs = static_cast<int>(min(int64_t{kTile}, args.K - k0));
      for (int step = 0; step < num_inputs; ++step) {
#pragma unroll
        for (int r = 0; r < kRowsOfThread; ++r) {
          add_product(sums[r], xs[j + r * kThreadRows][step], ws[i][step]);
        }
      }
      __syncthreads();
    }
    const int64_t n = n0 + i;
    if (n >= args.N) continue;  // of this round; every thread goes through the same rounds
#pragma unroll
    for (int r = 0; r < kRowsOfThread; ++r) {
      const int64_t m = m0 + j + r * kThreadRows;
      if (m >= args.M) continue;
      const float value = scaled_sum(args.scales, args.bias, static_cast<float>(sums[r]), m, n);
      store_number(args.y, args.y_dtype, m * args.y_stride + n, value);
    }
  }
}

}  // namespace

void gemm_plain(const CudaContext& context, ConstMatrix x, ConstMatrix w, const RowScales& scales,
                const float* bias, Matrix y) {
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == w.num_cols && w.num_rows == y.num_cols &&
                   x.dtype == w.dtype,
               x.num_rows, x.num_cols, w.num_rows, w.num_cols, y.num_rows, y.num_cols);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const PlainArguments args = {.x = x.data,
                               .w = w.data,
                               .y = y.data,
                               .M = y.num_rows,
                               .N = y.num_cols,
                               .K = x.num_cols,
                               .x_stride = x.row_stride,
                               .w_stride = w.row_stride,
                               .y_stride = y.row_stride,
                               .y_dtype = y.dtype,
                               .scales = scales,
                               .bias = bias};
  constexpr int64_t kGridRowsMax = 65535;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(args.N, kTile)),
                  static_cast<unsigned>(std::min(ceil_div<int64_t>(args.M, kTile), kGridRowsMax)));
  const dim3 block(kTile, kThreadRows);
  const auto launch = [&](auto kernel) {
    launch_kernel(context, "gemm_plain", {.grid = grid, .block = block}, kernel, args);
  };
  switch (x.dtype) {
    case DType::kF16:
      return launch(gemm_plain_kernel<__half, float>);
    case DType::kBf16:
      return launch(gemm_plain_kernel<__nv_bfloat16, float>);
    case DType::kF32:
      return launch(gemm_plain_kernel<float, float>);
    case DType::kF8E4M3:
      return launch(gemm_plain_kernel<E4m3Code, float>);
    case DType::kI8:
      return launch(gemm_plain_kernel<int8_t, int>);
    default:
      HALLEY_CHECK(false, name_of(x.dtype));
  }
}

}  // namespace halley::cuda
