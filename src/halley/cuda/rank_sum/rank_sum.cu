#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/rank_sum/exchange_call.cuh"
#include "halley/cuda/rank_sum/rank_sum.h"
#include "halley/cuda/rank_sum/with_ranks.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

using Vector = Words<4>;
constexpr int kVectorElements = 8;
constexpr int kThreadsMax = 512;
/// Small sums have CTAs of this many threads, on as many SMs as possible.
constexpr int kThreadsMin = 128;

struct RowVectors {
  int num_per_row, num_vectors;
  int64_t row_stride;
};

/// rows: [M, K] row-major; sent as [M, K] without gaps.
template <typename T, int kRanksMax>
__global__ void __launch_bounds__(kThreadsMax)
    sum_kernel(const __grid_constant__ ExchangeArgs args, RowVectors shape, T* rows) {
  launch_dependents(args);
  ptx::griddepcontrol_wait();
  ExchangeCall<kRanksMax> call(args);
  const auto for_vectors = [&](const auto& body) {
    const int num_threads = static_cast<int>(gridDim.x * blockDim.x);
    for (int v = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); v < shape.num_vectors;
         v += num_threads) {
      const int m = v / shape.num_per_row, i = v % shape.num_per_row;
      body(rows + m * shape.row_stride + kVectorElements * i,
           static_cast<uint32_t>(v * sizeof(Vector)));
    }
  };
  for_vectors([&](const T* vector, uint32_t offset) {
    call.send(Vector::load(vector).without_sentinel(), offset);
  });
  call.finish_send();
  for_vectors([&](T* vector, uint32_t offset) {
    const uint32_t offsets[1] = {offset};
    const Vector own[1] = {Vector::load(vector).without_sentinel()};
    Vector x[1][kRanksMax];
    call.receive(offsets, own, x);
    sum_of_ranks<T>(x[0], args.num_ranks).store(vector);
  });
  call.finish();
}

}  // namespace

void sum_over_ranks(const CudaContext& context, const PeerExchange& exchange, Matrix rows) {
  HALLEY_CHECK(exchange.fits(rows), name_of(rows.dtype), rows.num_rows, rows.num_cols,
               rows.row_stride);
  if (exchange.num_ranks() == 1 || rows.num_rows == 0 || rows.num_cols == 0) return;
  const auto per_row = static_cast<int>(rows.num_cols / kVectorElements);
  const auto num_vectors = static_cast<int>(rows.num_rows) * per_row;
  // Rows without gaps are one row.
  const bool is_dense = rows.row_stride == rows.num_cols;
  const RowVectors shape = {is_dense ? num_vectors : per_row, num_vectors, rows.row_stride};
  const int num_ctas_max = exchange.num_ctas_max();
  const int num_threads = num_vectors <= num_ctas_max * kThreadsMin ? kThreadsMin : kThreadsMax;
  const int num_ctas = std::min(num_ctas_max, ceil_div(num_vectors, num_threads));
  with_exchanged_type(rows.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    with_ranks_max(exchange.num_ranks(), [&](auto ranks_max) {
      launch_kernel(context, "sum over ranks",
                    {.grid = dim3(static_cast<unsigned>(num_ctas)),
                     .block = dim3(static_cast<unsigned>(num_threads))},
                    sum_kernel<T, decltype(ranks_max)::value>, exchange.args(), shape,
                    rows.row<T>(0));
    });
  });
}

}  // namespace halley::cuda
