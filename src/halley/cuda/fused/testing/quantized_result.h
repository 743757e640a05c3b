// For tests of operations with quantized outputs: the kinds of outputs, and rows of each.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/cuda/fused/quantized_output.h"
#include "halley/cuda/testing/device_matrix.h"

namespace halley::cuda {

struct QuantCase {
  ActivationQuant kind;
  float scale = 0.02f;
  bool has_sums = false;
  bool has_perm = false;  // of blocks
};
inline constexpr QuantCase kQuantCases[] = {
    {ActivationQuant::kS8Token, 0, false},     {ActivationQuant::kS8Token, 0, true},
    {ActivationQuant::kS8Static, 0.02f, true}, {ActivationQuant::kE4m3Token},
    {ActivationQuant::kE4m3Static, 0.01f},     {ActivationQuant::kE4m3Static, NAN},
    {ActivationQuant::kS4S8Block128},          {ActivationQuant::kS4S8Block128, 0, false, true}};

inline std::vector<int32_t> shuffled_inputs(int64_t K) {
  std::vector<int32_t> order(static_cast<size_t>(K));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<uint32_t>(K)));
  return order;
}

/// Quantized rows with guards, their scales and sums. `padding` 16 keeps rows at multiples of 16.
class QuantizedResult {
 public:
  QuantizedResult(const QuantCase& of, DType dtype, int64_t M, int64_t K, int64_t padding)
      : quantized_(activation_code_dtype(of.kind), M, K + padding),
        scales_(DType::kF32, ceil_div(K, activation_group_inputs(of.kind, K)), M),
        sums_(DType::kI32, 1, M),
        order_(shuffled_inputs(of.has_perm ? K : 1)),
        to_{.dtype = dtype,
            .quant = {.kind = of.kind,
                      .scale = of.scale,
                      .num_s8_inputs = 256,
                      .s4_clip = 0.875f,
                      .input_perm = of.has_perm ? order_.data() : nullptr},
            .rows = {.codes = quantized_.matrix(),
                     .padded_cols = K + padding,
                     .scales = scales_.matrix().row<float>(0),
                     .scales_pitch = is_block(of) ? scales_.matrix().row_stride : 0,
                     .sums = of.has_sums ? sums_.matrix().row<int32_t>(0) : nullptr}} {
    to_.rows.codes.num_cols = K;
    // Padding stays within the last block.
    if (is_block(of)) to_.rows.padded_cols = std::min(K + padding, round_up<int64_t>(K, 128));
  }

  const QuantizedOutput& to() const { return to_; }

  void expect_same(const QuantizedResult& right, const CudaStream& stream,
                   const std::string& what) const {
    expect_equal(quantized_.get(stream), right.quantized_.get(stream), what + ", quantized values");
    expect_equal(scales_.get(stream), right.scales_.get(stream), what + ", scales");
    expect_equal(sums_.get(stream), right.sums_.get(stream), what + ", sums");
    EXPECT_TRUE(quantized_.guards_are_intact(stream)) << what;
    EXPECT_TRUE(scales_.guards_are_intact(stream)) << what;
    EXPECT_TRUE(sums_.guards_are_intact(stream)) << what;
  }

 private:
  static bool is_block(const QuantCase& of) { return of.kind == ActivationQuant::kS4S8Block128; }
  static void expect_equal(const std::vector<float>& got, const std::vector<float>& right,
                           const std::string& what) {
    ASSERT_EQ(got.size(), right.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE((std::isnan(got[i]) && std::isnan(right[i])) ||
                  std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(right[i]))
          << what << " at " << i << ": expected " << right[i] << ", got " << got[i];
    }
  }

  DeviceMatrix quantized_, scales_, sums_;
  DeviceArray<int32_t> order_;
  QuantizedOutput to_;
};

}  // namespace halley::cuda
