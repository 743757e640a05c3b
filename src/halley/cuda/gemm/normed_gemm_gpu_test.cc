// Products of one row behind a norm: the bits of the operations one after the other.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/gemm/normed_gemm.h"
#include "halley/cuda/gemm/streamed_gemm.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

using NormedGemmGpuTest = GpuTest;

struct Case {
  int64_t N = 64, K = 64;
  bool is_gated = false, has_block = true, has_bias = false;
};

DeviceArray<float> numbers(int64_t count, int step) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(0.25f + static_cast<float>(i * step % 101) * 0.01f);
  }
  return DeviceArray<float>(values);
}

TEST_F(NormedGemmGpuTest, HasTheBitsOfOneOperationAfterTheOther) {
  const Case cases[] = {{},
                        {200, 192, false, false},
                        {2 * 328, 1088, true, true, true},
                        {1001, 704, false, true, true},
                        {6144, 4096},
                        {2 * 3000, 5120, true},
                        {96, 8192, false, true, true},
                        {2 * 17472, 64, true},  // several tiles a block
                        {33856, 128}};
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(str(dtype, ", N = ", c.N, ", K = ", c.K, ", gated ", c.is_gated));
      const int64_t num_outputs = c.is_gated ? c.N / 2 : c.N;
      DeviceMatrix w(dtype, c.N, c.K), block(dtype, 1, c.K), hidden(DType::kF32, 1, c.K);
      w.fill_normal(1, 1.0f / std::sqrt(static_cast<float>(c.K)));
      block.fill_normal(2);
      hidden.fill_normal(3, 2.0f);
      const DeviceArray<float> norm_weight = numbers(c.K, 7), bias = numbers(c.N, 3);
      const NormParams norm = {
          .weight = norm_weight.data(), .weight_offset = 0.5f, .epsilon = 1e-5f};
      const auto gate = c.is_gated ? std::optional(Activation::kSilu) : std::nullopt;
      const DeviceMatrix sum(DType::kF32, 1, c.K), got(dtype, 1, num_outputs);
      NormedOperands operands = {.norm = norm,
                                 .hidden = hidden.matrix(),
                                 .w = w.matrix(),
                                 .bias = c.has_bias ? bias.data() : nullptr,
                                 .gate = gate};
      if (c.has_block) {
        operands.x = block.matrix();
        operands.sum = sum.matrix();
      }
      normed_gemm(context_, operands, got.matrix());
      const std::vector<float> got_values = got.get(stream_);
      EXPECT_TRUE(got.guards_are_intact(stream_) && sum.guards_are_intact(stream_));

      const DeviceMatrix x(dtype, 1, c.K), expected(dtype, 1, num_outputs);
      if (c.has_block) {
        add_norm_rows(context_, norm, block.matrix(), hidden.matrix(), x.matrix());
        EXPECT_EQ(sum.get(stream_), hidden.get(stream_));
      } else {
        norm_rows(context_, norm, hidden.matrix(), x.matrix());
      }
      streamed_gemm(context_,
                    {.x = x.matrix(), .w = w.matrix(), .bias = operands.bias, .gate = gate},
                    expected.matrix());
      EXPECT_EQ(got_values, expected.get(stream_));
      if (HasFailure()) return;
    }
  }
}

/// Each reads what the one before wrote, and starts before that is done.
struct QuantizedCase {
  int64_t N = 64, K = 256;
  bool has_norm = false, has_block = true, is_gated = false, is_tensor = false;
};

/// By quantize_rows() and streamed_gemm().
std::vector<float> coded_product(const CudaContext& context, const CudaActivationQuant& quant,
                                 ConstMatrix x, StreamedOperands operands, const DeviceMatrix& y) {
  const size_t mark = context.workspace.mark();
  const QuantizedRows codes = take_quantized_rows(context, quant.kind, 1, x.num_cols, false);
  quantize_rows(context, quant, x, codes);
  operands.x = codes.codes;
  operands.scales.x_scales = codes.scales;
  streamed_gemm(context, operands, y.matrix());
  const std::vector<float> values = y.get(context.stream);
  context.workspace.release(mark);
  return values;
}

TEST_F(NormedGemmGpuTest, RoundsRowsToE4m3) {
  const QuantizedCase cases[] = {{},
                                 {200, 512, true, false},
                                 {2 * 328, 1280, true, true, true},
                                 {1001, 768, false, true, false, true},
                                 {6144, 4096, true},
                                 {4096, 14336},
                                 {2 * 3000, 8192, true, true, true},
                                 {2 * 17472, 256, true, true, true}};
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const QuantizedCase& c : cases) {
      SCOPED_TRACE(str(dtype, ", N = ", c.N, ", K = ", c.K, ", gated ", c.is_gated));
      const int64_t num_outputs = c.is_gated ? c.N / 2 : c.N;
      DeviceMatrix w(DType::kF8E4M3, c.N, c.K), block(dtype, 1, c.K), hidden(DType::kF32, 1, c.K);
      w.fill_normal(1, 1.0f / std::sqrt(static_cast<float>(c.K)) * 16);
      block.fill_normal(2);
      hidden.fill_normal(3, 2.0f);
      const DeviceArray<float> norm_weight = numbers(c.K, 7), bias = numbers(c.N, 3);
      const DeviceArray<float> w_scales = numbers(c.N, 5);
      const NormParams norm = {
          .weight = norm_weight.data(), .weight_offset = 0.5f, .epsilon = 1e-5f};
      const CudaActivationQuant quant = {
          .kind = c.is_tensor ? ActivationQuant::kE4m3Static : ActivationQuant::kE4m3Token,
          .scale = 0.01f};
      const RowScales scales = {.w_scales = w_scales.data(), .is_w_tensor = c.is_tensor};
      const auto gate = c.is_gated ? std::optional(Activation::kSilu) : std::nullopt;
      const DeviceMatrix sum(DType::kF32, 1, c.K), got(dtype, 1, num_outputs);
      NormedOperands operands = {
          .w = w.matrix(), .quant = quant, .scales = scales, .bias = bias.data(), .gate = gate};
      if (c.has_block) operands.x = block.matrix();
      if (c.has_norm) {
        operands.norm = norm;
        operands.hidden = hidden.matrix();
        operands.sum = sum.matrix();
      }
      normed_gemm(context_, operands, got.matrix());
      const std::vector<float> got_values = got.get(stream_);
      EXPECT_TRUE(got.guards_are_intact(stream_) && sum.guards_are_intact(stream_));

      const DeviceMatrix x(dtype, 1, c.K), expected(dtype, 1, num_outputs);
      if (c.has_norm && c.has_block) {
        add_norm_rows(context_, norm, block.matrix(), hidden.matrix(), x.matrix());
        EXPECT_EQ(sum.get(stream_), hidden.get(stream_));
      } else if (c.has_norm) {
        norm_rows(context_, norm, hidden.matrix(), x.matrix());
      }
      const std::vector<float> wanted = coded_product(
          context_, quant, c.has_norm ? x.matrix() : block.matrix(),
          {.x = {}, .w = w.matrix(), .scales = scales, .bias = bias.data(), .gate = gate},
          expected);
      float largest = 0;
      for (const float value : wanted) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < wanted.size(); ++i) {
        // Sums in another order, and outputs of 8 bits of mantissa.
        ASSERT_LE(std::abs(got_values[i] - wanted[i]), 0.005f * largest) << i;
      }
    }
  }
}

TEST_F(NormedGemmGpuTest, WaitsForTheKernelBefore) {
  constexpr int64_t K = 1024;
  constexpr int kLength = 30;
  DeviceMatrix w(DType::kF16, K, K), first(DType::kF32, 1, K);
  w.fill_normal(1, 0.03f);
  const DeviceMatrix second(DType::kF32, 1, K);
  DeviceMatrix block(DType::kF16, 1, K);
  const DeviceMatrix y(DType::kF16, 1, K), x(DType::kF16, 1, K);
  const DeviceArray<float> norm_weight = numbers(K, 7);
  const NormParams norm = {.weight = norm_weight.data(), .epsilon = 1e-5f};
  const auto start = [&] {
    first.fill_normal(4);
    block.fill_normal(5);
  };
  start();
  for (int i = 0; i < kLength; ++i) {
    add_norm_rows(context_, norm, block.matrix(), first.matrix(), x.matrix());
    stream_.synchronize();
    streamed_gemm(context_, {.x = x.matrix(), .w = w.matrix()}, block.matrix());
    stream_.synchronize();
  }
  const std::vector<float> expected = first.get(stream_), last = block.get(stream_);
  const auto run = [&] {
    for (int i = 0; i < kLength; ++i) {
      const DeviceMatrix& hidden = i % 2 == 0 ? first : second;
      const DeviceMatrix& sum = i % 2 == 0 ? second : first;
      const DeviceMatrix& from = i % 2 == 0 ? block : y;
      const DeviceMatrix& to = i % 2 == 0 ? y : block;
      normed_gemm(context_,
                  {.x = from.matrix(),
                   .norm = norm,
                   .hidden = hidden.matrix(),
                   .sum = sum.matrix(),
                   .w = w.matrix()},
                  to.matrix());
    }
  };
  start();
  run();
  EXPECT_EQ(first.get(stream_), expected);
  EXPECT_EQ(block.get(stream_), last);
  const CudaGraph graph = CudaGraph::capture(stream_, run);
  start();
  graph.launch(stream_);
  EXPECT_EQ(first.get(stream_), expected);
  EXPECT_EQ(block.get(stream_), last);
}

}  // namespace
}  // namespace halley::cuda
