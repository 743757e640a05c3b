// A layer's experts in full precision on the GPU against f64, and against their layers one by one.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/cuda/experts/testing/experts_gpu_test.h"
#include "halley/cuda/runtime/cuda_graph.h"

namespace halley::cuda {
namespace {

const ExpertsCase kCases[] = {{8, 2, 1, 64, 96},
                              {8, 2, 33, 72, 40},
                              {16, 8, 5, 130, 65, true, false},
                              {128, 8, 70, 48, 24},
                              {4, 1, 300, 64, 40, true, true, Activation::kGeluTanh},
                              {3, 3, 17, 33, 31, false, true, Activation::kGeluErf, true},
                              {2, 1, 90, 64, 72, true, true, Activation::kSilu, true},
                              {1, 1, 3, 16, 8}};

TEST_F(ExpertsGpuTest, GroupedAgreesWithTheDefinition) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const ExpertsCase& shape : kCases) {
      const Experts experts = dense_experts(shape, dtype);
      EXPECT_TRUE(experts.on_device.is_capturable());
      EXPECT_THAT(experts.on_device.describe(), testing::HasSubstr("grouped: all experts"));
      expect_right(shape, dtype, experts, dtype, DType::kF32);
      expect_right(shape, dtype, experts, DType::kF32, dtype);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ExpertsGpuTest, InF32TheyRunOneAfterTheOther) {
  for (const ExpertsCase& shape : kCases) {
    const Experts experts = dense_experts(shape, DType::kF32);
    EXPECT_FALSE(experts.on_device.is_capturable());
    EXPECT_THAT(experts.on_device.describe(),
                testing::AllOf(testing::HasSubstr("one after the other, with a wait"),
                               testing::HasSubstr("activations are f32")));
    expect_right(shape, DType::kF32, experts, DType::kF32, DType::kF32);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ExpertsGpuTest, ARowsBitsDoNotDependOnTheBatch) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    // The batch takes the wide tiles, rows alone the narrow ones.
    const ExpertsCase shape = {4, 2, 300, 128, 200};
    const Experts experts = dense_experts(shape, dtype);
    DeviceMatrix x(dtype, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    const DeviceMatrix y(dtype, shape.M, shape.K);
    x.fill_normal(1);
    logits.fill_normal(2);
    run(experts, x, logits, y);
    const std::vector<float> all = y.get(stream_);
    for (const int64_t m : {0, 1, 77, 299}) {
      const DeviceMatrix alone(dtype, 1, shape.K);
      experts.on_device.run(context_, x.matrix().rows(m, m + 1), logits.matrix().rows(m, m + 1),
                            alone.matrix());
      const std::vector<float> got = alone.get(stream_);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + m * shape.K))
          << name_of(dtype) << " row " << m;
    }
  }
}

TEST_F(ExpertsGpuTest, AGraphRunsWithAnotherRouting) {
  for (const int64_t M : {1, 5, 200}) {
    const ExpertsCase shape = {8, 2, M, 64, 48};
    const Experts experts = dense_experts(shape, DType::kBf16);
    DeviceMatrix x(DType::kBf16, M, shape.K), logits(DType::kF32, M, shape.E);
    const DeviceMatrix y(DType::kF32, M, shape.K), expected(DType::kF32, M, shape.K);
    x.fill_normal(1);
    logits.fill_normal(2);
    const CudaGraph graph = CudaGraph::capture(stream_, [&] { run(experts, x, logits, y); });
    for (uint32_t seed = 3; seed < 6; ++seed) {
      x.fill_normal(seed);
      logits.fill_normal(seed + 10, 3.0f);
      graph.launch(stream_);
      stream_.synchronize();
      run(experts, x, logits, expected);
      EXPECT_EQ(y.get(stream_), expected.get(stream_)) << "M = " << M << ", seed " << seed;
    }
  }
}

TEST_F(ExpertsGpuTest, WorkspaceIsWhatItSays) {
  const ExpertsCase shape = {6, 2, 0, 130, 65};
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    const Experts experts = dense_experts(shape, dtype);
    for (const int64_t M : {1, 33, 200}) {
      DeviceArena small(experts.on_device.workspace_bytes(M), "a test's workspace");
      const CudaContext context = {device_, stream_, small};
      DeviceMatrix x(DType::kF32, M, shape.K), logits(DType::kF32, M, shape.E);
      const DeviceMatrix y(DType::kF32, M, shape.K);
      x.fill_normal(1);
      // All rows to the same two experts: the most that one expert can get.
      std::vector<float> values(static_cast<size_t>(M * shape.E), 0.0f);
      for (int64_t m = 0; m < M; ++m) {
        values[static_cast<size_t>(m * shape.E + 1)] = 4;
        values[static_cast<size_t>(m * shape.E + 4)] = 5;
      }
      logits.set(values);
      experts.on_device.run(context, x.matrix(), logits.matrix(), y.matrix());
      EXPECT_FALSE(std::isnan(y.get(stream_).back()));
    }
  }
}

TEST_F(ExpertsGpuTest, NoRowsAreNothingToDo) {
  const ExpertsCase shape = {2, 1, 0, 16, 8};
  const Experts experts = dense_experts(shape, DType::kF16);
  const DeviceMatrix x(DType::kF16, 0, 16), logits(DType::kF32, 0, 2), y(DType::kF16, 0, 16);
  run(experts, x, logits, y);
  EXPECT_EQ(experts.on_device.workspace_bytes(0), 0u);
}

TEST_F(ExpertsGpuTest, RejectsMoreExpertsThanItHasBitsFor) {
  EXPECT_THAT(
      [&] {
        CudaExperts(context_, {}, std::vector<CudaLinear>(1025), std::vector<CudaLinear>(1025));
      },
      testing::ThrowsMessage<UnsupportedError>(testing::HasSubstr(
          "experts on the GPU: expected at most 1024, got 1025. Run the model on the CPU.")));
}

/// The ranks of expert parallelism: what each adds for its experts is all.
TEST_F(ExpertsGpuTest, PartsAddUpToAllExperts) {
  const ExpertsCase shape = {.E = 6, .per_token = 2, .M = 33, .K = 64, .F = 96, .has_bias = true};
  for (const DType dtype : {DType::kF16, DType::kF32}) {  // grouped, and one by one
    DeviceMatrix x(dtype, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    x.fill_normal(11);
    logits.fill_normal(12, 2.0f);
    const auto outputs_of = [&](int64_t begin, int64_t end) {
      random_.seed(5);
      const Experts experts = dense_experts(shape, dtype, begin, end);
      const DeviceMatrix y(DType::kF32, shape.M, shape.K);
      run(experts, x, logits, y);
      EXPECT_TRUE(y.guards_are_intact(stream_));
      return y.get(stream_);
    };
    const std::vector<float> all = outputs_of(0, shape.E);
    std::vector<float> sum(all.size());
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{1, 4}, std::pair{4, 6}}) {
      const std::vector<float> part = outputs_of(begin, end);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(sum[i], all[i], 1e-5 * (1 + std::fabs(all[i]))) << name_of(dtype) << " " << i;
    }
  }
}

}  // namespace
}  // namespace halley::cuda
