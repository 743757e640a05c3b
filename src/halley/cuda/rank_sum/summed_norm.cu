#include "halley/base/check.h"
#include "halley/cuda/fused/norm_to_quantized.cuh"
#include "halley/cuda/fused/quantized_norm.h"
#include "halley/cuda/ops/norm_kernels.cuh"
#include "halley/cuda/ops/number_rows.cuh"
#include "halley/cuda/rank_sum/rank_sum.h"
#include "halley/cuda/rank_sum/summed_block.cuh"
#include "halley/cuda/rank_sum/with_ranks.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

struct Operands {
  const CudaContext& context;
  const PeerExchange& exchange;
  const NormParams& params;
  Matrix block, hidden;
};

/// Whether one kernel does it all. Its CTAs, one a row, wait for those of other ranks, so that all
/// must be resident.
bool is_fused(const Operands& operands, const NormRowShape& shape) {
  return operands.exchange.num_ranks() > 1 &&
         takes_register_norm(operands.context, operands.params, shape) &&
         shape.num_rows <= operands.exchange.num_ctas_max();
}

/// `out_of` gives the output policy for the type of the block.
template <typename OutOf>
void launch_fused(const Operands& operands, const NormRowShape& shape, const OutOf& out_of) {
  with_exchanged_type(operands.block.dtype, [&](auto type) {
    using X = typename decltype(type)::type;
    const auto out = out_of(type);
    with_ranks_max(operands.exchange.num_ranks(), [&](auto ranks_max) {
      using Block = SummedBlock<X, decltype(ranks_max)::value>;
      launch_kernel(operands.context, "sum over ranks with norm",
                    {.grid = dim3(static_cast<unsigned>(shape.num_rows)),
                     .block = dim3(static_cast<unsigned>(norm_threads(shape.num_columns)))},
                    register_norm_kernel<Block, decltype(out)>, operands.params, shape,
                    {operands.block.row<X>(0), operands.exchange.args()},
                    operands.hidden.row<float>(0), out);
    });
  });
}

void check(const Operands& operands, int64_t num_rows, int64_t num_cols) {
  const Matrix &block = operands.block, &hidden = operands.hidden;
  HALLEY_CHECK(operands.exchange.fits(block), name_of(block.dtype), block.num_rows, block.num_cols,
               block.row_stride);
  HALLEY_CHECK(block.num_rows == num_rows && block.num_cols == num_cols, block.num_rows, num_rows,
               block.num_cols, num_cols);
  HALLEY_CHECK(hidden.num_rows == num_rows && hidden.num_cols == num_cols, hidden.num_rows,
               num_rows, hidden.num_cols, num_cols);
}

}  // namespace

void sum_add_norm_rows(const CudaContext& context, const PeerExchange& exchange,
                       const NormParams& params, Matrix block, Matrix hidden, Matrix y) {
  const Operands operands = {context, exchange, params, block, hidden};
  check(operands, y.num_rows, y.num_cols);
  HALLEY_CHECK(y.dtype == block.dtype, name_of(y.dtype), name_of(block.dtype));
  if (y.num_rows == 0) return;
  NormRowShape shape = norm_row_shape(block, hidden);
  shape.is_vec4_aligned &= is_vec4_aligned(y);
  if (is_fused(operands, shape)) {
    return launch_fused(operands, shape, [&](auto type) {
      using Y = typename decltype(type)::type;
      return NumberRows<Y>{y.row<Y>(0), y.row_stride};
    });
  }
  sum_over_ranks(context, exchange, block);
  add_norm_rows(context, params, block, hidden, y);
}

void sum_add_norm_rows(const CudaContext& context, const PeerExchange& exchange,
                       const NormParams& params, Matrix block, Matrix hidden,
                       const QuantizedOutput& y) {
  const Operands operands = {context, exchange, params, block, hidden};
  check(operands, y.rows.codes.num_rows, y.rows.codes.num_cols);
  if (block.num_rows == 0) return;
  const NormRowShape shape = norm_row_shape(block, hidden);
  if (is_fused(operands, shape)) {
    const QuantizedOutputArgs rows = quantized_output_args(y);
    if (rows.has_blocks) {
      return launch_fused(operands, shape, [&](auto) { return NormToQuantizedBlocks{rows}; });
    }
    return launch_fused(operands, shape, [&](auto) { return NormToQuantized{rows}; });
  }
  sum_over_ranks(context, exchange, block);
  add_norm_rows(context, params, block, hidden, y);
}

}  // namespace halley::cuda
