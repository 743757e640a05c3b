// Fused operations with quantized outputs agree byte for byte with the unfused operation followed
// by quantize_rows().
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/fused/quantized_activation.h"
#include "halley/cuda/fused/quantized_norm.h"
#include "halley/cuda/fused/testing/quantized_result.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

constexpr DType kTypes[] = {DType::kF16, DType::kBf16, DType::kF32};

class FusedGpuTest : public GpuTest {
 protected:
  /// The unfused reference: floating-point rows, then quantize_rows().
  void round(const DeviceMatrix& numbers, const QuantizedResult& right) {
    quantize_rows(context_, right.to().quant, numbers.matrix(), right.to().rows);
  }

  /// Puts a NaN in one row and an infinity in another one, and zeros a third.
  static void spoil(DeviceMatrix& x, const CudaStream& stream) {
    std::vector<float> values = x.get(stream);
    const auto K = static_cast<size_t>(x.num_cols());
    if (x.num_rows() > 3) {
      values[K] = NAN;
      values[3 * K - 1] = -INFINITY;
      std::fill(values.begin() + static_cast<int64_t>(3 * K),
                values.begin() + static_cast<int64_t>(4 * K), 0.0f);
    }
    x.set(values);
  }
};

TEST_F(FusedGpuTest, NormsEqualNormThenQuantize) {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1},    {5, 7},    {2, 100},   {70, 4096},
                                                {6, 4100}, {4, 8192}, {1, 12288}, {1, 50000}};
  for (const auto& [M, K] : shapes) {
    std::vector<float> weight(static_cast<size_t>(K)), bias(weight.size());
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] = 0.5f + static_cast<float>(i % 7) / 4;
      bias[i] = static_cast<float>(i % 5) - 2;
    }
    const DeviceArray<float> device_weight(weight), device_bias(bias);
    for (const QuantCase& of : kQuantCases) {
      for (const DType dtype : kTypes) {
        for (const bool is_layer_norm : {false, true}) {
          const NormParams params = {.is_layer_norm = is_layer_norm,
                                     .weight = device_weight.data(),
                                     .bias = device_bias.data(),
                                     .weight_offset = is_layer_norm ? 0.0f : 1.0f,
                                     .epsilon = 1e-5f};
          const std::string what = str(of.kind, " by ", name_of(dtype), ", ", M, " x ", K);
          const int64_t padding = (16 - K % 16) % 16;
          const QuantizedResult right(of, dtype, M, K, padding), got(of, dtype, M, K, padding);
          DeviceMatrix x(DType::kF32, M, K);
          const DeviceMatrix y(dtype, M, K);
          x.fill_normal(static_cast<uint32_t>(K), 3.0f, 0.25f);
          spoil(x, stream_);
          norm_rows(context_, params, x.matrix(), y.matrix());
          round(y, right);
          norm_rows(context_, params, x.matrix(), got.to());
          got.expect_same(right, stream_, what);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(FusedGpuTest, AddNormsEqualAddNormThenQuantize) {
  for (const auto& [M, K] :
       {std::pair<int64_t, int64_t>{9, 4096}, {3, 77}, {300, 4096}, {260, 5124}}) {
    const std::vector<float> weight(static_cast<size_t>(K), 1.25f);
    const DeviceArray<float> device_weight(weight);
    const NormParams params = {.weight = device_weight.data(), .epsilon = 1e-6f};
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      for (const QuantCase& of : kQuantCases) {
        const QuantizedResult right(of, dtype, M, K, 3), got(of, dtype, M, K, 3);
        DeviceMatrix block(dtype, M, K), hidden(DType::kF32, M, K), same(DType::kF32, M, K);
        const DeviceMatrix y(dtype, M, K);
        block.fill_normal(1);
        hidden.fill_normal(2, 4.0f);
        same.fill_normal(2, 4.0f);
        add_norm_rows(context_, params, block.matrix(), hidden.matrix(), y.matrix());
        round(y, right);
        add_norm_rows(context_, params, block.matrix(), same.matrix(), got.to());
        got.expect_same(right, stream_, str(of.kind, " by ", name_of(dtype), ", K ", K));
        EXPECT_EQ(same.get(stream_), hidden.get(stream_));
        EXPECT_TRUE(same.guards_are_intact(stream_));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(FusedGpuTest, ActivationsEqualActivationThenQuantize) {
  // Clusters of 1 to 8 CTAs, CTAs without columns, rows not aligned for vectors of 4; large M.
  const std::pair<int64_t, int64_t> shapes[] = {
      {1, 1},       {5, 3},     {7, 64},   {1, 14336},   {20, 1408},  {140, 1408},
      {150, 14336}, {1, 90112}, {256, 64}, {260, 14336}, {300, 1412}, {257, 16392}};
  constexpr Activation kAll[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                                 Activation::kRelu};
  size_t index = 0;
  for (const auto& [M, F] : shapes) {
    for (const QuantCase& of : kQuantCases) {
      for (const DType dtype : kTypes) {
        const Activation activation = kAll[index++ % 4];
        const std::string what = str(of.kind, " by ", name_of(dtype), ", ", M, " x ", F,
                                     ", activation ", static_cast<int>(activation));
        const int64_t padding = (16 - F % 16) % 16;
        const QuantizedResult right(of, dtype, M, F, padding), got(of, dtype, M, F, padding);
        DeviceMatrix gate_up(dtype, M, 2 * F);
        const DeviceMatrix y(dtype, M, F);
        gate_up.fill_normal(static_cast<uint32_t>(F + M), 2.0f);
        if (index % 3 == 0) spoil(gate_up, stream_);
        gated_activation(context_, activation, gate_up.matrix(), y.matrix());
        round(y, right);
        gated_activation(context_, activation, gate_up.matrix(), got.to());
        got.expect_same(right, stream_, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(FusedGpuTest, NothingIsDoneForNoRows) {
  constexpr int64_t kRows = 3, K = 256;  // rows that are there and are not asked for
  const DeviceArray<float> weight(std::vector<float>(K, 1.0f));
  DeviceMatrix x(DType::kF32, kRows, K), block(DType::kF16, kRows, K);
  DeviceMatrix gate_up(DType::kF16, kRows, 2 * K), hidden(DType::kF32, kRows, K);
  for (DeviceMatrix* input : {&x, &block, &gate_up, &hidden}) input->fill_normal(1);
  const std::vector<float> hidden_before = hidden.get(stream_);
  const auto without_rows = [](Matrix matrix) {
    matrix.num_rows = 0;
    return matrix;
  };
  for (const QuantCase& of : kQuantCases) {
    const QuantizedResult got(of, DType::kF16, kRows, K, 0),
        untouched(of, DType::kF16, kRows, K, 0);
    QuantizedOutput to = got.to();
    to.rows.codes = without_rows(to.rows.codes);
    const NormParams params = {.weight = weight.data(), .epsilon = 1e-5f};
    norm_rows(context_, params, without_rows(x.matrix()), to);
    add_norm_rows(context_, params, without_rows(block.matrix()), without_rows(hidden.matrix()),
                  to);
    gated_activation(context_, Activation::kSilu, without_rows(gate_up.matrix()), to);
    EXPECT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess) << of.kind;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << of.kind;
    got.expect_same(untouched, stream_, str(of.kind, ", no rows"));
    EXPECT_EQ(hidden.get(stream_), hidden_before) << of.kind;
    EXPECT_TRUE(hidden.guards_are_intact(stream_)) << of.kind;
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace halley::cuda
