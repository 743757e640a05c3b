#include "halley/kernels/gemm/testing/gemm_reference.h"

#include <vector>

#include "halley/base/check.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/kernels/gemm/pack_dense.h"

namespace halley {

void gemm_reference(const PackedWeight& weight, const float* bias, ConstMatrix x, Matrix y,
                    Precision precision) {
  HALLEY_CHECK(x.num_cols == weight.K && y.num_cols == weight.N && x.num_rows == y.num_rows,
               x.num_rows, x.num_cols, y.num_rows, y.num_cols, weight.N, weight.K);
  std::vector<float> w(static_cast<size_t>(weight.K));
  const auto num_inputs = static_cast<size_t>(weight.K);
  std::vector<float> rounded(static_cast<size_t>(x.num_rows) * num_inputs);
  for (int64_t m = 0; m < x.num_rows; ++m) {
    round_activations(params_of(weight, precision), {x.row<float>(m), num_inputs},
                      rounded.data() + static_cast<size_t>(m) * num_inputs);
  }
  for (int64_t n = 0; n < weight.N; ++n) {
    unpack_row(weight, n, w.data(), precision);
    for (int64_t m = 0; m < x.num_rows; ++m) {
      double sum = bias == nullptr ? 0.0 : double{bias[n]};
      for (int64_t k = 0; k < weight.K; ++k) {
        sum += double{rounded[static_cast<size_t>(m * weight.K + k)]} *
               double{w[static_cast<size_t>(k)]};
      }
      y.row<float>(m)[n] = static_cast<float>(sum);
    }
  }
}

}  // namespace halley
