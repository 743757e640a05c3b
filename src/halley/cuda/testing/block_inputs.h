// For tests of block-scaled GEMMs: random 4-bit weights, random inputs of 4 and 8 bits on the host
// and the device, and the expected outputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/core/float16.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {

/// Weights: quantized values [N, K], 0 to 15 for -8 to 7, and scales [N, blocks]. Inputs: x of s8,
/// scales [blocks, M]. A bias.
class BlockInputs {
 public:
  static constexpr int64_t kBlock = 128;

  struct Sizes {
    int64_t M, N, K;
  };
  struct Options {
    /// Blocks that begin below this input have 8 bits, the others 4.
    int64_t num_s8_inputs = 0;
    /// All scales are 1 and all quantized values the lowest: accumulators are the largest possible,
    /// and exact in f32.
    bool is_extreme = false;
    /// 8-bit blocks hold values of 4 bits too.
    bool has_small_codes = false;
  };

  /// The scales of a block of x take a multiple of `row_padding` floats.
  BlockInputs(const Sizes& sizes, const Options& options, int64_t row_padding)
      : M(sizes.M),
        N(sizes.N),
        K(sizes.K),
        num_blocks(ceil_div(sizes.K, kBlock)),
        x_scales_pitch(round_up(sizes.M, row_padding)),
        num_s8_inputs(options.num_s8_inputs),
        x_(DType::kI8, M, K, round_up<int64_t>(K, 16) - K + 16) {
    std::mt19937 random(static_cast<uint32_t>(M * 7 + K + N));
    std::uniform_int_distribution<int> nibbles(0, 15), s8(-128, 127), s4(-8, 7);
    std::uniform_real_distribution<float> scales(0.5f, 1.5f);
    const bool is_extreme = options.is_extreme;
    for (int64_t i = 0; i < N * K; ++i) {
      codes_.push_back(static_cast<uint8_t>(is_extreme ? 0 : nibbles(random)));
    }
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t k = 0; k < K; ++k) {
        const bool is_s8 = k / kBlock * kBlock < num_s8_inputs;
        const int code = is_s8 && !options.has_small_codes ? s8(random) : s4(random);
        x_values_.push_back(static_cast<float>(!is_extreme ? code : is_s8 ? -128 : -8));
      }
    }
    x_.set(x_values_);
    for (int64_t i = 0; i < N * num_blocks; ++i) {
      w_scales_.push_back(is_extreme ? 1.0f : f16_to_f32(f32_to_f16(scales(random) / 64)));
    }
    // Scales past M are NaN: kernels must not use them.
    x_scales_.resize(static_cast<size_t>(num_blocks * x_scales_pitch), std::nanf(""));
    for (int64_t b = 0; b < num_blocks; ++b) {
      for (int64_t m = 0; m < M; ++m) {
        set_x_scale(m, b, is_extreme ? 1.0f : scales(random) / 32);
      }
    }
    for (int64_t n = 0; n < N; ++n) {
      bias_.push_back(is_extreme ? 0.0f : static_cast<float>(s8(random)) / 32);
    }
    device_bias_ = std::make_unique<DeviceArray<float>>(bias_);
    upload_x_scales();
  }

  void set_x_scale(int64_t m, int64_t b, float scale) {
    x_scales_[static_cast<size_t>(b * x_scales_pitch + m)] = scale;
  }
  float x_scale(int64_t m, int64_t b) const {
    return x_scales_[static_cast<size_t>(b * x_scales_pitch + m)];
  }
  /// Call after set_x_scale().
  void upload_x_scales() { device_x_scales_ = std::make_unique<DeviceArray<float>>(x_scales_); }

  std::span<const uint8_t> codes() const { return codes_; }
  std::span<const float> w_scales() const { return w_scales_; }
  /// The device's x.
  ConstMatrix x() const { return x_.matrix(); }
  const float* x_scales() const { return device_x_scales_->data(); }
  const float* bias() const { return device_bias_->data(); }

  /// Compares y, of this type, with the f64 reference.
  void expect_right(const CudaStream& stream, const DeviceMatrix& y, DType dtype) const {
    const std::vector<float> got = y.get(stream);
    ASSERT_TRUE(y.guards_are_intact(stream));
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        const Expected expected = expect(m, n, 1);
        const float value = got[static_cast<size_t>(m * N + n)];
        const double error_max =
            kSumError * expected.magnitude + half_step_of(dtype) * std::fabs(expected.y);
        ASSERT_LE(std::fabs(value - expected.y), error_max)
            << "[" << m << ", " << n << "]: expected " << expected.y << ", got " << value;
      }
    }
  }

  /// Compares to the bit: w_scale * block accumulator rounded to f32, added by fmaf with the scale
  /// of x, blocks in ascending order within each of num_splits parts of K, parts in ascending
  /// order, then the bias.
  void expect_bits(const CudaStream& stream, const DeviceMatrix& y, DType dtype,
                   int num_splits) const {
    const std::vector<float> got = y.get(stream);
    ASSERT_TRUE(y.guards_are_intact(stream));
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        const Expected expected = expect(m, n, num_splits);
        const float value = got[static_cast<size_t>(m * N + n)];
        ASSERT_EQ(value, rounded_to(dtype, expected.bits)) << "[" << m << ", " << n << "]";
        ASSERT_LE(std::fabs(expected.bits - expected.y), kSumError * expected.magnitude);
      }
    }
  }

  /// Checks that a NaN scale reaches its row and no other.
  void expect_nan_in_row(const CudaStream& stream, const DeviceMatrix& y, int64_t row) const {
    const std::vector<float> got = y.get(stream);
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        ASSERT_EQ(std::isnan(got[static_cast<size_t>(m * N + n)]), m == row) << m;
      }
    }
  }

  const int64_t M, N, K, num_blocks, x_scales_pitch, num_s8_inputs;

 private:
  /// Error of f32 accumulation over blocks, relative to the sum of their magnitudes.
  static constexpr double kSumError = 1e-6;

  struct Expected {
    double y = 0, magnitude = 0;
    float bits = 0;
  };

  float w_scale(int64_t n, int64_t b) const {
    return w_scales_[static_cast<size_t>(n * num_blocks + b)];
  }

  Expected expect(int64_t m, int64_t n, int num_splits) const {
    const float bias = bias_[static_cast<size_t>(n)];
    Expected expected = {bias, std::fabs(bias), 0};
    for (int split = 0; split < num_splits; ++split) {
      float total = 0;
      for (int64_t b = split * num_blocks / num_splits; b < (split + 1) * num_blocks / num_splits;
           ++b) {
        int64_t sum = 0;
        for (int64_t k = b * kBlock; k < std::min(K, (b + 1) * kBlock); ++k) {
          sum += static_cast<int64_t>(x_values_[static_cast<size_t>(m * K + k)]) *
                 (int64_t{codes_[static_cast<size_t>(n * K + k)]} - 8);
        }
        const float scale = x_scales_[static_cast<size_t>(b * x_scales_pitch + m)];
        total = std::fma(w_scale(n, b) * static_cast<float>(sum), scale, total);
        const double exact = double{scale} * w_scale(n, b) * static_cast<double>(sum);
        expected.y += exact;
        expected.magnitude += std::fabs(exact);
      }
      expected.bits += total;
    }
    expected.bits += bias;
    return expected;
  }

  DeviceMatrix x_;
  std::vector<uint8_t> codes_;
  std::vector<float> x_values_, w_scales_, x_scales_, bias_;
  std::unique_ptr<DeviceArray<float>> device_bias_, device_x_scales_;
};

}  // namespace halley::cuda
