#include "halley/kernels/norm/testing/norm_reference.h"

#include <cmath>
#include <vector>

namespace halley {
namespace {

std::vector<double> row_as_f64(ConstMatrix x, int64_t m) {
  return {x.row<float>(m), x.row<float>(m) + x.num_cols};
}

}  // namespace

void rms_norm_reference(ConstMatrix x, const float* weight, float weight_offset, float epsilon,
                        Matrix y) {
  for (int64_t m = 0; m < x.num_rows; ++m) {
    const std::vector<double> row = row_as_f64(x, m);
    double sum = 0;
    for (const double value : row) sum += value * value;
    const double mean = sum / static_cast<double>(row.size());
    const double scale = 1.0 / std::sqrt(mean + static_cast<double>(epsilon));
    for (size_t i = 0; i < row.size(); ++i) {
      const double gain = static_cast<double>(weight[i]) + static_cast<double>(weight_offset);
      y.row<float>(m)[i] = static_cast<float>(row[i] * scale * gain);
    }
  }
}

void layer_norm_reference(ConstMatrix x, const float* weight, const float* bias, float epsilon,
                          Matrix y) {
  for (int64_t m = 0; m < x.num_rows; ++m) {
    const std::vector<double> row = row_as_f64(x, m);
    const auto count = static_cast<double>(row.size());
    double mean = 0;
    for (const double value : row) mean += value / count;
    double variance = 0;
    for (const double value : row) variance += (value - mean) * (value - mean) / count;
    const double scale = 1.0 / std::sqrt(variance + static_cast<double>(epsilon));
    for (size_t i = 0; i < row.size(); ++i) {
      const double shift = bias == nullptr ? 0.0 : static_cast<double>(bias[i]);
      const double value = (row[i] - mean) * scale * static_cast<double>(weight[i]) + shift;
      y.row<float>(m)[i] = static_cast<float>(value);
    }
  }
}

}  // namespace halley
