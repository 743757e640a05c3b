// Products of one row that make it themselves: the results of the operations one after the other.
#include <cmath>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/fused/quantized_norm.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mixed_gemm/testing/mixed_test_weight.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/row_gemm/row_gemm.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

constexpr MixedKind kKinds[] = {MixedKind::kU4S8, MixedKind::kU4F16, MixedKind::kU4Bf16};

struct Case {
  int64_t N = 64, K = 64;
  bool has_norm = false, has_block = true, is_gated = false, has_bias = false;
  int64_t group_size = 128;
  ActivationQuant quant = ActivationQuant::kS8Token;  // of s8
};

std::vector<float> steps(int64_t count, int step) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(0.025f + static_cast<float>(i * step % 101) * 0.001f);
  }
  return values;
}

class RowGemm : public HopperTest {
 protected:
  /// One operation after the other.
  std::vector<float> expected(const Case& c, const MixedWeight& weight, ConstMatrix row,
                              const CudaActivationQuant& quant, const float* bias) {
    const DeviceMatrix wide(row.dtype, 1, c.N);
    const size_t mark = context_.workspace.mark();
    MixedOperands operands = {.x = row, .bias = bias};
    if (is_s8(weight.kind)) {
      const QuantizedRows codes =
          take_quantized_rows(context_, quant.kind, 1, c.K, weight.needs_sums());
      quantize_rows(context_, quant, row, codes);
      operands.x = codes.codes;
      operands.x_scales = {.x_scales = codes.scales, .x_sums = codes.sums};
    }
    const MixedPlan plan = narrow_mixed_plan(mixed_shape(weight, 1), mixed_device(context_));
    mixed_gemm_planned(context_, weight, operands, plan, wide.matrix());
    std::vector<float> values;
    if (c.is_gated) {
      const DeviceMatrix gated(row.dtype, 1, c.N / 2);
      gated_activation(context_, Activation::kSilu, wide.matrix(), gated.matrix());
      values = gated.get(stream_);
    } else {
      values = wide.get(stream_);
    }
    context_.workspace.release(mark);
    return values;
  }

  void expect_right(MixedKind kind, DType dtype, const Case& c) {
    SCOPED_TRACE(str(kind, " ", dtype, ", ", c.N, " x ", c.K, ", norm ", c.has_norm, ", block ",
                     c.has_block, ", gated ", c.is_gated, ", group ", c.group_size));
    const RandomWeight random(kind, c.N, c.K, test_group_size(kind, c.K, c.group_size));
    const MixedWeight weight(pack_mixed(random.source));
    DeviceMatrix block(dtype, 1, c.K), hidden(DType::kF32, 1, c.K);
    block.fill_normal(1);
    hidden.fill_normal(2, 2.0f);
    const DeviceArray<float> norm_weight(steps(c.K, 7)), bias(steps(c.N, 3));
    const NormParams norm = {
        .weight = norm_weight.data(), .weight_offset = 0.05f, .epsilon = 1e-5f};
    const CudaActivationQuant quant = {.kind = c.quant, .scale = 0.03f};
    const DeviceMatrix sum(DType::kF32, 1, c.K), got(dtype, 1, c.is_gated ? c.N / 2 : c.N);
    RowOperands operands = {.quant = quant, .bias = c.has_bias ? bias.data() : nullptr};
    if (c.has_block) operands.x = block.matrix();
    if (c.has_norm) {
      operands.norm = norm;
      operands.hidden = hidden.matrix();
      operands.sum = sum.matrix();
    }
    if (c.is_gated) operands.gate = Activation::kSilu;
    row_gemm(context_, weight, operands, got.matrix());
    const std::vector<float> got_values = got.get(stream_);
    EXPECT_TRUE(got.guards_are_intact(stream_) && sum.guards_are_intact(stream_));

    const DeviceMatrix row(dtype, 1, c.K);
    if (c.has_norm && c.has_block) {
      add_norm_rows(context_, norm, block.matrix(), hidden.matrix(), row.matrix());
      EXPECT_EQ(sum.get(stream_), hidden.get(stream_));
    } else if (c.has_norm) {
      norm_rows(context_, norm, hidden.matrix(), row.matrix());
    }
    const std::vector<float> wanted =
        expected(c, weight, c.has_norm ? row.matrix() : block.matrix(), quant, operands.bias);
    ASSERT_EQ(got_values.size(), wanted.size());
    if (is_s8(kind)) {
      EXPECT_EQ(got_values, wanted);
      return;
    }
    float largest = 0;
    for (const float value : wanted) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < wanted.size(); ++i) {
      // Another order of sums, and outputs of 8 bits of mantissa.
      ASSERT_LE(std::abs(got_values[i] - wanted[i]), 0.01f * largest) << i;
    }
  }

  void expect_right(const Case& c) {
    for (const MixedKind kind : kKinds) {
      for (const DType dtype : {DType::kF16, DType::kBf16}) {
        if (is_s8(kind) || dtype == test_input_dtype(kind)) expect_right(kind, dtype, c);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_F(RowGemm, IsRightForRowsThatAreThere) {
  for (const Case& c :
       {Case{}, Case{1, 8}, Case{200, 136}, Case{17, 1096},
        Case{1001, 264, false, true, false, true}, Case{4096, 4096}, Case{4096, 14336},
        Case{16, 16384}, Case{33856, 128}, Case{.N = 300, .K = 400, .group_size = 32},
        Case{.N = 300, .K = 400, .group_size = 64}}) {
    expect_right(c);
  }
}

TEST_F(RowGemm, IsRightForNorms) {
  for (const Case& c : {Case{64, 64, true}, Case{200, 192, true, false}, Case{6144, 4096, true},
                        Case{1001, 5128, true, true, false, true}, Case{96, 8192, true}}) {
    expect_right(c);
  }
}

TEST_F(RowGemm, IsRightForGates) {
  for (const Case& c : {Case{64, 64, true, true, true}, Case{2 * 336, 1088, true, true, true, true},
                        Case{28672, 4096, true, true, true}, Case{2 * 17472, 64, true, true, true},
                        Case{2 * 4320, 264, false, true, true}}) {
    expect_right(c);
  }
}

TEST_F(RowGemm, TakesOneScaleForAllRows) {
  expect_right(MixedKind::kU4S8, DType::kF16,
               {.N = 96, .K = 256, .quant = ActivationQuant::kS8Static});
}

/// Chains of launches that start early, each of which reads what the one before writes.
TEST_F(RowGemm, WaitsForTheKernelAhead) {
  const int64_t K = 1024;
  for (const MixedKind kind : kKinds) {
    SCOPED_TRACE(str(kind));
    const DType dtype = kind == MixedKind::kU4Bf16 ? DType::kBf16 : DType::kF16;
    const RandomWeight random(kind, K, K, test_group_size(kind, K, 128));
    const MixedWeight weight(pack_mixed(random.source));
    const DeviceArray<float> norm_weight(steps(K, 7));
    const NormParams norm = {.weight = norm_weight.data(), .epsilon = 1e-5f};
    DeviceMatrix x(dtype, 1, K), y(dtype, 1, K), hidden(DType::kF32, 1, K), sum(DType::kF32, 1, K);
    const CudaActivationQuant quant = {.kind = ActivationQuant::kS8Token};
    const auto chain = [&](bool has_waits) {
      x.fill_normal(5);
      hidden.fill_normal(6);
      for (int i = 0; i < 20; ++i) {
        const bool is_even = i % 2 == 0;
        row_gemm(context_, weight,
                 {.x = (is_even ? x : y).matrix(),
                  .norm = norm,
                  .hidden = (is_even ? hidden : sum).matrix(),
                  .sum = (is_even ? sum : hidden).matrix(),
                  .quant = quant},
                 (is_even ? y : x).matrix());
        if (has_waits) stream_.synchronize();
      }
      return hidden.get(stream_);
    };
    EXPECT_EQ(chain(false), chain(true));
  }
}

}  // namespace
}  // namespace halley::cuda
