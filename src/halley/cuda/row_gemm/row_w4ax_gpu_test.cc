// Products of one row of W4Ax that make it themselves: the results of the operations one after the
// other.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/row_gemm/row_gemm.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/testing/w4ax_test_weight.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {
namespace {

struct Case {
  int64_t N = 64, K = 64;
  bool has_norm = false, has_block = true, is_gated = false, has_bias = false;
  bool has_order = false, is_bf16 = false;
};

class RowW4ax : public HopperTest {
 protected:
  static constexpr int64_t kBlock = 128;

  W4axWeight random_weight(int64_t N, int64_t K) {
    std::mt19937 random(static_cast<uint32_t>(N * 31 + K));
    std::vector<uint8_t> codes(static_cast<size_t>(N * K));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % 16);
    std::vector<float> scales(static_cast<size_t>(N * ceil_div(K, kBlock)));
    for (float& scale : scales) scale = 0.001f * static_cast<float>(random() % 97 + 1);
    W4axWeight weight(context_, N, K);
    put_w4ax(context_, codes, scales, weight);
    return weight;
  }

  static std::vector<int32_t> random_order(int64_t K) {
    std::vector<int32_t> order(static_cast<size_t>(K));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    return order;
  }

  static std::vector<float> steps(int64_t count, int step) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(0.025f + static_cast<float>(i * step % 101) * 0.001f);
    }
    return values;
  }

  /// One operation after the other.
  std::vector<float> expected(const Case& c, const W4axWeight& weight, ConstMatrix row,
                              const RowOperands& operands, DType y_dtype) {
    const size_t mark = context_.workspace.mark();
    const int64_t blocks = ceil_div(c.K, kBlock), stride = blocks * kBlock;
    QuantizedRows rows;
    rows.codes = {context_.workspace.take(static_cast<size_t>(stride)), DType::kI8, 1, c.K, stride};
    rows.padded_cols = c.K;
    rows.scales = context_.workspace.take<float>(static_cast<size_t>(blocks * kW4axTokenPadding));
    rows.scales_pitch = kW4axTokenPadding;
    quantize_rows(context_, operands.quant, row, rows);
    const DeviceMatrix wide(y_dtype, 1, c.N);
    w4ax_gemm_narrow(context_, weight,
                     {.x = rows.codes,
                      .x_scales = rows.scales,
                      .x_scales_pitch = rows.scales_pitch,
                      .bias = operands.bias},
                     wide.matrix());
    std::vector<float> values;
    if (c.is_gated) {
      const DeviceMatrix gated(y_dtype, 1, c.N / 2);
      gated_activation(context_, *operands.gate, wide.matrix(), gated.matrix());
      values = gated.get(stream_);
    } else {
      values = wide.get(stream_);
    }
    context_.workspace.release(mark);
    return values;
  }

  void expect_right(const Case& c) {
    SCOPED_TRACE(str(c.N, " x ", c.K, ", norm ", c.has_norm, ", block ", c.has_block, ", gated ",
                     c.is_gated, ", order ", c.has_order, ", bf16 ", c.is_bf16));
    const DType dtype = c.is_bf16 ? DType::kBf16 : DType::kF16;
    const DType y_dtype = c.is_gated || c.has_norm ? dtype : DType::kF32;
    const W4axWeight weight = random_weight(c.N, c.K);
    DeviceMatrix block(dtype, 1, c.K), hidden(DType::kF32, 1, c.K);
    block.fill_normal(1);
    hidden.fill_normal(2, 2.0f);
    const DeviceArray<float> norm_weight(steps(c.K, 7)), bias(steps(c.N, 3));
    const DeviceArray<int32_t> order(random_order(c.K));
    const DeviceMatrix sum(DType::kF32, 1, c.K), got(y_dtype, 1, c.is_gated ? c.N / 2 : c.N);
    RowOperands operands = {.quant = {.kind = ActivationQuant::kS4S8Block128,
                                      .num_s8_inputs = ceil_div(c.K, 5 * kBlock) * kBlock,
                                      .s4_clip = 0.875f,
                                      .input_perm = c.has_order ? order.data() : nullptr},
                            .bias = c.has_bias ? bias.data() : nullptr};
    if (c.has_block) operands.x = block.matrix();
    if (c.has_norm) {
      operands.norm =
          NormParams{.weight = norm_weight.data(), .weight_offset = 0.05f, .epsilon = 1e-5f};
      operands.hidden = hidden.matrix();
      operands.sum = sum.matrix();
    }
    if (c.is_gated) operands.gate = Activation::kSilu;
    row_gemm(context_, weight, operands, got.matrix());
    const std::vector<float> got_values = got.get(stream_);
    EXPECT_TRUE(got.guards_are_intact(stream_) && sum.guards_are_intact(stream_));

    const DeviceMatrix row(dtype, 1, c.K);
    if (c.has_norm && c.has_block) {
      add_norm_rows(context_, *operands.norm, block.matrix(), hidden.matrix(), row.matrix());
      EXPECT_EQ(sum.get(stream_), hidden.get(stream_));
    } else if (c.has_norm) {
      norm_rows(context_, *operands.norm, hidden.matrix(), row.matrix());
    }
    const std::vector<float> wanted =
        expected(c, weight, c.has_norm ? row.matrix() : block.matrix(), operands, y_dtype);
    ASSERT_EQ(got_values.size(), wanted.size());
    float largest = 0;
    for (const float value : wanted) largest = std::max(largest, std::abs(value));
    // Another order of f32 sums, and outputs of 8 or 11 bits of mantissa.
    const float tolerance = y_dtype == DType::kF32 ? 2e-6f : c.is_bf16 ? 0.01f : 1.5e-3f;
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_LE(std::abs(got_values[i] - wanted[i]), tolerance * largest) << i;
    }
  }
};

TEST_F(RowW4ax, IsRightForRowsThatAreThere) {
  for (const Case& c : {Case{}, Case{1, 8}, Case{200, 136}, Case{17, 1096},
                        Case{1001, 264, false, true, false, true}, Case{4096, 4096},
                        Case{4096, 14336}, Case{16, 16384}, Case{33856, 128}}) {
    expect_right(c);
  }
}

TEST_F(RowW4ax, IsRightForNorms) {
  for (const Case& c : {Case{64, 64, true}, Case{200, 192, true, false}, Case{6144, 4096, true},
                        Case{1001, 5128, true, true, false, true}, Case{96, 8192, true},
                        Case{.N = 6144, .K = 4096, .has_norm = true, .is_bf16 = true}}) {
    expect_right(c);
  }
}

TEST_F(RowW4ax, IsRightForGates) {
  for (const Case& c : {Case{64, 64, true, true, true}, Case{2 * 336, 1088, true, true, true, true},
                        Case{28672, 4096, true, true, true}, Case{2 * 17472, 64, true, true, true},
                        Case{2 * 4320, 264, false, true, true}}) {
    expect_right(c);
  }
}

TEST_F(RowW4ax, PutsInputsInTheirOrder) {
  for (const Case& c :
       {Case{.N = 96, .K = 200, .has_order = true},
        Case{.N = 4096, .K = 14336, .has_order = true, .is_bf16 = true},
        Case{.N = 512, .K = 16384, .has_order = true},
        Case{.N = 6144, .K = 4096, .has_norm = true, .has_order = true},
        Case{.N = 1024, .K = 8192, .has_norm = true, .is_gated = true, .has_order = true}}) {
    expect_right(c);
  }
}

TEST_F(RowW4ax, SaysWhereARowIsNotFinite) {
  const int64_t N = 32, K = 256;
  const W4axWeight weight = random_weight(N, K);
  DeviceMatrix x(DType::kF16, 1, K);
  std::vector<float> values(static_cast<size_t>(K), 1.0f);
  values[200] = std::numeric_limits<float>::infinity();
  x.set(values);
  const DeviceMatrix y(DType::kF32, 1, N);
  row_gemm(
      context_, weight,
      {.x = x.matrix(), .quant = {.kind = ActivationQuant::kS4S8Block128, .num_s8_inputs = 128}},
      y.matrix());
  for (const float value : y.get(stream_)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace halley::cuda
