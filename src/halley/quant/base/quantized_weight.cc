#include "halley/quant/base/quantized_weight.h"

#include "halley/base/check.h"

namespace halley {

void dequantize_row(const QuantizedWeight& weight, int64_t n, std::span<float> row) {
  HALLEY_CHECK(static_cast<int64_t>(row.size()) == weight.K, row.size(), weight.K);
  for (int64_t k = 0; k < weight.K; ++k) {
    const auto group = static_cast<size_t>(n * weight.num_groups() + weight.group_of(k));
    const int code = weight.codes[static_cast<size_t>(n * weight.K + k)];
    row[static_cast<size_t>(k)] =
        weight.scales[group] * static_cast<float>(code - int{weight.zeros[group]});
  }
}

}  // namespace halley
