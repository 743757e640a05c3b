// For tests of GEMMs y = x w^T: random inputs on the host and the device, and the expected outputs
// for dequantized weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {

/// Weights that x is multiplied with. With x of s8 a weight is scale * (number - zero).
struct GemmWeights {
  std::vector<float> numbers;        // [N, K]
  std::vector<float> scales, zeros;  // [N], with x of s8; empty zeros are 0
};

/// x [M, K] of s8, f16 or bf16; s8 with per-token scales and row sums. A bias for each output.
class GemmInputs {
 public:
  /// Accumulation error relative to the sum of |x w|: 16-bit MMAs accumulate with a few bits less
  /// than f32; s8 accumulators are exact, and scaling them takes a few f32 operations.
  static constexpr double kSumError = 5e-5, kS8SumError = 1e-6;

  GemmInputs(DType dtype, int64_t M, int64_t N, int64_t K, bool has_bias)
      : M_(M),
        N_(N),
        K_(K),
        dtype_(dtype),
        has_bias_(has_bias),
        x_(dtype, M, K, round_up<int64_t>(K, 16) - K + 16) {
    std::mt19937 random(static_cast<uint32_t>(M * 7 + K));
    std::uniform_int_distribution<int> codes(-128, 127);
    for (int64_t i = 0; i < M * K; ++i) {
      // Multiples of 1/16 below 8: exact in all types.
      x_values_.push_back(static_cast<float>(codes(random)) / (is_s8() ? 1 : 16));
    }
    std::uniform_real_distribution<float> scales(0x1p-14f, 0x1p-13f);
    for (int64_t m = 0; m < M; ++m) x_scales_.push_back(scales(random));
    for (int64_t n = 0; n < N; ++n) bias_.push_back(static_cast<float>(codes(random)) / 32);
    device_bias_ = std::make_unique<DeviceArray<float>>(bias_);
    upload();
  }

  void set_x(const std::function<float(int64_t, int64_t)>& value) {
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t k = 0; k < K_; ++k) x_values_[static_cast<size_t>(m * K_ + k)] = value(m, k);
    }
    upload();
  }
  void set_scales_to_one() {
    std::fill(x_scales_.begin(), x_scales_.end(), 1.0f);
    upload();
  }

  bool is_s8() const { return dtype_ == DType::kI8; }
  /// The device's x.
  ConstMatrix x() const { return x_.matrix(); }
  const float* scales() const { return device_scales_->data(); }  // [M]
  const int32_t* sums() const { return device_sums_->data(); }    // [M]
  const float* bias() const { return has_bias_ ? device_bias_->data() : nullptr; }

  void set_weights(GemmWeights weights) {
    weights_ = std::move(weights);
    expected_.clear();
  }

  /// Compares y, of this type, with the f64 reference. `has_equal_bits`: with x of s8 compares with
  /// rounded(x_scale * (scale * sum - (scale * zero) * x_sum) + bias) to the bit, where each
  /// multiply and add is one fmaf.
  void expect_right(const CudaStream& stream, const DeviceMatrix& y, DType dtype,
                    bool has_equal_bits = false) {
    const std::vector<float> got = y.get(stream);
    ASSERT_TRUE(y.guards_are_intact(stream));
    make_expected();
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t n = 0; n < N_; ++n) {
        const Expected& expected = expected_[static_cast<size_t>(m * N_ + n)];
        const float value = got[static_cast<size_t>(m * N_ + n)];
        if (has_equal_bits && is_s8()) {
          ASSERT_EQ(value, rounded_to(dtype, expected.bits)) << "[" << m << ", " << n << "]";
        }
        const double error_max = (is_s8() ? kS8SumError : kSumError) * expected.magnitude +
                                 half_step_of(dtype) * std::fabs(expected.y) + 1e-7;
        ASSERT_LE(std::fabs(value - expected.y), error_max)
            << "[" << m << ", " << n << "]: expected " << expected.y << ", got " << value;
      }
    }
  }

 protected:
  const int64_t M_, N_, K_;

 private:
  struct Expected {
    double y = 0, magnitude = 0;
    float bits = 0;
  };

  void upload() {
    x_.set(x_values_);
    sums_.clear();
    for (int64_t m = 0; m < M_; ++m) {
      float sum = 0;
      for (int64_t k = 0; k < K_; ++k) sum += x_values_[static_cast<size_t>(m * K_ + k)];
      sums_.push_back(static_cast<int32_t>(sum));
    }
    device_scales_ = std::make_unique<DeviceArray<float>>(x_scales_);
    device_sums_ = std::make_unique<DeviceArray<int32_t>>(sums_);
    expected_.clear();
  }

  void make_expected() {
    if (!expected_.empty()) return;
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t n = 0; n < N_; ++n) expected_.push_back(expect(m, n));
    }
  }

  Expected expect(int64_t m, int64_t n) const {
    const float* x = x_values_.data() + m * K_;
    const float* w = weights_.numbers.data() + n * K_;
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < K_; ++k) {
      const double term = double{x[k]} * w[k];
      sum += term;
      magnitude += std::fabs(term);
    }
    const float bias = has_bias_ ? bias_[static_cast<size_t>(n)] : 0;
    if (!is_s8()) return {sum + bias, magnitude + std::fabs(bias), 0};
    const float scale = weights_.scales[static_cast<size_t>(n)];
    const float zero = weights_.zeros.empty() ? 0 : weights_.zeros[static_cast<size_t>(n)];
    const float x_scale = x_scales_[static_cast<size_t>(m)];
    const auto x_sum = static_cast<float>(sums_[static_cast<size_t>(m)]);
    const float less = std::fma(-(scale * zero), x_sum, scale * static_cast<float>(sum));
    const double both = double{scale} * x_scale;
    const double taken = double{zero} * x_sum;
    return {both * (sum - taken) + bias,
            std::fabs(both) * (magnitude + std::fabs(taken)) + std::fabs(bias),
            std::fma(x_scale, less, bias)};
  }

  DType dtype_;
  bool has_bias_;
  DeviceMatrix x_;
  GemmWeights weights_;
  std::vector<float> x_values_, x_scales_, bias_;
  std::vector<int32_t> sums_;
  std::vector<Expected> expected_;  // computed at the first comparison
  std::unique_ptr<DeviceArray<float>> device_scales_, device_bias_;
  std::unique_ptr<DeviceArray<int32_t>> device_sums_;
};

}  // namespace halley::cuda
