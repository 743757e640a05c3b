#include "halley/kernels/activation/testing/activation_reference.h"

#include <cmath>
#include <limits>

namespace halley {

double activation_reference(Activation activation, double x) {
  if (x == -std::numeric_limits<double>::infinity()) return 0.0;
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGeluTanh: {
      // 0.5 x (1 + tanh u) without the cancellation of 1 + tanh u.
      const double u = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
      return x / (1.0 + std::exp(-2.0 * u));
    }
    case Activation::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kRelu:
      return x < 0.0 ? 0.0 : x;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void gated_activation_reference(Activation activation, ConstMatrix gate_up, Matrix y) {
  for (int64_t m = 0; m < y.num_rows; ++m) {
    const float* gate = gate_up.row<float>(m);
    for (int64_t i = 0; i < y.num_cols; ++i) {
      const double value = activation_reference(activation, static_cast<double>(gate[i]));
      y.row<float>(m)[i] = static_cast<float>(value * static_cast<double>(gate[y.num_cols + i]));
    }
  }
}

void apply_activation_reference(Activation activation, Matrix x) {
  for (int64_t m = 0; m < x.num_rows; ++m) {
    for (int64_t i = 0; i < x.num_cols; ++i) {
      float& value = x.row<float>(m)[i];
      value = static_cast<float>(activation_reference(activation, static_cast<double>(value)));
    }
  }
}

void apply_soft_cap_reference(float cap, Matrix x) {
  for (int64_t m = 0; m < x.num_rows; ++m) {
    for (int64_t i = 0; i < x.num_cols; ++i) {
      float& value = x.row<float>(m)[i];
      const auto limit = static_cast<double>(cap);
      value = static_cast<float>(limit * std::tanh(static_cast<double>(value) / limit));
    }
  }
}

}  // namespace halley
