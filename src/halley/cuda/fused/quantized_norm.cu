#include "halley/base/check.h"
#include "halley/cuda/fused/norm_to_quantized.cuh"
#include "halley/cuda/fused/quantized_norm.h"
#include "halley/cuda/ops/dispatch.h"
#include "halley/cuda/ops/norm_kernels.cuh"

namespace halley::cuda {
namespace {

struct NormOperands {
  ConstMatrix x;
  Matrix hidden;  // may be empty
};

void run(const CudaContext& context, const NormParams& params, const NormOperands& operands,
         const QuantizedOutput& y) {
  const ConstMatrix& x = operands.x;
  const Matrix& quantized = y.rows.codes;
  HALLEY_CHECK(x.num_rows == quantized.num_rows && x.num_cols == quantized.num_cols, x.num_rows,
               quantized.num_rows, x.num_cols, quantized.num_cols);
  HALLEY_CHECK(x.num_cols >= 1 && x.num_cols <= kNormColumnsMax, x.num_cols);
  if (x.num_rows == 0) return;
  const QuantizedOutputArgs rows = quantized_output_args(y);
  const NormRowShape shape = norm_row_shape(x, operands.hidden);
  float* hidden = operands.hidden.data == nullptr ? nullptr : operands.hidden.row<float>(0);
  with_float_type(x.dtype, [&](auto type) {
    const auto* x_data = reinterpret_cast<const typename decltype(type)::type*>(x.data);
    const auto launch = [&](const auto& out) {
      if (params.is_layer_norm) {
        launch_norm<true>(context, params, shape, x_data, hidden, out);
      } else {
        launch_norm<false>(context, params, shape, x_data, hidden, out);
      }
    };
    if (rows.has_blocks) return launch(NormToQuantizedBlocks{rows});
    launch(NormToQuantized{rows});
  });
}

}  // namespace

void norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix x,
               const QuantizedOutput& y) {
  run(context, params, {.x = x, .hidden = {}}, y);
}

void add_norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix block,
                   Matrix hidden, const QuantizedOutput& y) {
  HALLEY_CHECK(hidden.num_rows == block.num_rows && hidden.num_cols == block.num_cols,
               hidden.num_rows, block.num_rows);
  run(context, params, {.x = block, .hidden = hidden}, y);
}

}  // namespace halley::cuda
