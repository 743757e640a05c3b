// Products of a few rows that start before the kernel before them is done.
#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/gemm/few_rows.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

using FewRowsGpuTest = GpuTest;

/// Each product reads what the one before wrote, and starts before that is done.
TEST_F(FewRowsGpuTest, WaitForTheKernelBefore) {
  constexpr int64_t K = 1024;
  constexpr int kLength = 40;
  // The weight turns the order of its inputs by one.
  DeviceMatrix w(DType::kF16, K, K, 0), first(DType::kF16, 8, K, 0), second(DType::kF16, 8, K, 0);
  std::vector<float> permutation(static_cast<size_t>(K * K)), values(static_cast<size_t>(8 * K));
  for (int64_t n = 0; n < K; ++n) permutation[static_cast<size_t>(n * K + (n + 1) % K)] = 1;
  w.set(permutation);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 2039) - 1000;
  first.set(values);
  const auto run = [&] {
    for (int i = 0; i < kLength; ++i) {
      const DeviceMatrix& x = i % 2 == 0 ? first : second;
      const DeviceMatrix& y = i % 2 == 0 ? second : first;
      gemm_few_rows(context_, {.x = x.matrix(), .w = w.matrix()}, y.matrix());
    }
  };
  const auto expect_turned = [&](int64_t count) {
    const std::vector<float> got = first.get(stream_);
    for (int64_t i = 0; i < 8 * K; ++i) {
      const int64_t from = i / K * K + (i % K + count) % K;
      ASSERT_EQ(got[static_cast<size_t>(i)], values[static_cast<size_t>(from)]) << i;
    }
  };
  run();
  expect_turned(kLength);
  const CudaGraph graph = CudaGraph::capture(stream_, run);
  graph.launch(stream_);
  graph.launch(stream_);
  expect_turned(3 * kLength);
}

/// A decoder's MLP, many times: the bits of one operation after the other.
TEST_F(FewRowsGpuTest, WaitAmongOtherOperations) {
  constexpr int64_t K = 1024, M = 3;
  DeviceMatrix gate_up_weight(DType::kF16, 2 * K, K), down_weight(DType::kF16, K, K);
  gate_up_weight.fill_normal(1, 0.05f);
  down_weight.fill_normal(2, 0.05f);
  DeviceMatrix hidden(DType::kF32, M, K);
  const DeviceMatrix x(DType::kF16, M, K), gate_up(DType::kF16, M, 2 * K), y(DType::kF16, M, K);
  const std::vector<float> ones(static_cast<size_t>(K), 1.0f);
  const DeviceArray<float> norm_weight(ones);
  const NormParams norm = {.weight = norm_weight.data(), .epsilon = 1e-5f};
  const auto run = [&](bool is_one_by_one) {
    const auto wait = [&] {
      if (is_one_by_one) stream_.synchronize();
    };
    for (int i = 0; i < 30; ++i) {
      norm_rows(context_, norm, hidden.matrix(), x.matrix());
      wait();
      gemm_few_rows(context_, {.x = x.matrix(), .w = gate_up_weight.matrix()}, gate_up.matrix());
      wait();
      gated_activation(context_, Activation::kSilu, gate_up.matrix(), x.matrix());
      wait();
      gemm_few_rows(context_, {.x = x.matrix(), .w = down_weight.matrix()}, y.matrix());
      wait();
      add_rows(context_, y.matrix(), hidden.matrix());
      wait();
    }
  };
  hidden.fill_normal(3);
  run(true);
  const std::vector<float> right = hidden.get(stream_);
  hidden.fill_normal(3);
  run(false);
  EXPECT_EQ(hidden.get(stream_), right);
  const CudaGraph graph = CudaGraph::capture(stream_, [&] { run(false); });
  hidden.fill_normal(3);
  graph.launch(stream_);
  EXPECT_EQ(hidden.get(stream_), right);
}

}  // namespace
}  // namespace halley::cuda
