// A layer's experts in few bits on the GPU against f64, and against their layers one by one.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/experts/testing/experts_gpu_test.h"
#include "halley/cuda/runtime/cuda_graph.h"

namespace halley::cuda {
namespace {

/// Weights of 4 and 8 bits with 16-bit inputs; the down product's groups end within its inputs.
TEST_F(ExpertsGpuTest, WeightsInTheirBitsAreGrouped) {
  for (const auto& [layout, group_size] :
       {std::pair{PackedLayout::kU4Quad, 32}, std::pair{PackedLayout::kU4Quad, 128},
        std::pair{PackedLayout::kU8Quad, 64}}) {
    for (const int64_t M : {1, 40, 150}) {
      const ExpertsCase shape = {6, 2, M, 96, 64};
      const Part joined = {{1, 128, 96, false}, layout, group_size};
      for (const DType dtype : {DType::kBf16, DType::kF16}) {
        const Experts experts = packed_experts(shape, dtype, {joined});
        EXPECT_TRUE(experts.on_device.is_capturable()) << experts.on_device.describe();
        const int bits = layout == PackedLayout::kU4Quad ? 4 : 8;
        const char* kernel = dtype == DType::kF16 ? "_f16" : "_bf16";
        EXPECT_THAT(experts.on_device.describe(),
                    testing::HasSubstr(str("grouped_gemm_u", bits, kernel)));
        expect_right(shape, dtype, experts, dtype, DType::kF32);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(ExpertsGpuTest, WeightsOfTwoBitsAreDecodedAndGrouped) {
  const ExpertsCase shape = {6, 2, 40, 96, 64};
  const Part joined = {{1, 128, 96, false}, PackedLayout::kU2Quad, 32};
  const Experts experts = packed_experts(shape, DType::kBf16, {joined});
  EXPECT_TRUE(experts.on_device.is_capturable()) << experts.on_device.describe();
  expect_right(shape, DType::kBf16, experts, DType::kBf16, DType::kF32);
}

/// Gate and up that could not be joined, since each has an order of inputs of its own.
TEST_F(ExpertsGpuTest, TwoPartsOfALayerAreGrouped) {
  const ExpertsCase shape = {5, 2, 40, 96, 64};
  const Part part = {{1, 64, 96, false}, PackedLayout::kU4Quad, 32, ZeroKind::kPoint, true};
  const Experts experts = packed_experts(shape, DType::kBf16, {part, part});
  EXPECT_TRUE(experts.on_device.is_capturable()) << experts.on_device.describe();
  expect_right(shape, DType::kBf16, experts, DType::kBf16, DType::kF32);
}

TEST_F(ExpertsGpuTest, InputsThatAllExpertsRoundAlikeAreGrouped) {
  const ExpertsCase shape = {5, 2, 40, 256, 128};
  const Part part = {
      {1, 256, 256, false},          PackedLayout::kU4Quad, 32, ZeroKind::kPoint, false,
      ActivationQuant::kE4m3Group128};
  const Experts experts = packed_experts(shape, DType::kBf16, {part});
  EXPECT_TRUE(experts.on_device.is_capturable()) << experts.on_device.describe();
  expect_right(shape, DType::kBf16, experts, DType::kBf16, DType::kF32);
}

TEST_F(ExpertsGpuTest, QuantizedInputsAreGrouped) {
  const Part kParts[] = {{{1, 128, 96, false},
                          PackedLayout::kU8Quad,
                          96,
                          ZeroKind::kPoint,
                          false,
                          ActivationQuant::kS8Token},
                         {{1, 128, 96, false},
                          PackedLayout::kU8Quad,
                          96,
                          ZeroKind::kPoint,
                          false,
                          ActivationQuant::kS8Static},
                         {{1, 128, 96, false},
                          PackedLayout::kU4Quad,
                          96,
                          ZeroKind::kPoint,
                          false,
                          ActivationQuant::kS8Token},
                         {{1, 128, 96, false},
                          PackedLayout::kF8E4M3Quad,
                          96,
                          ZeroKind::kPoint,
                          false,
                          ActivationQuant::kE4m3Token}};
  for (const Part& part : kParts) {
    for (const int64_t M : {1, 40, 150}) {
      const ExpertsCase shape = {6, 2, M, 96, 64};
      const Experts experts = packed_experts(shape, DType::kBf16, {part});
      SCOPED_TRACE(experts.on_device.describe());
      EXPECT_TRUE(experts.on_device.is_capturable());
      expect_near_its_layers(shape, DType::kBf16, experts);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ExpertsGpuTest, ScalesOfTheirOwnForInputsRunOneAfterTheOther) {
  const ExpertsCase shape = {4, 2, 20, 96, 64};
  const Part part = {{1, 128, 96, false},       PackedLayout::kU4Quad, 32, ZeroKind::kPoint, false,
                     ActivationQuant::kS8Static};
  const Experts experts = packed_experts(shape, DType::kBf16, {part}, true);
  EXPECT_FALSE(experts.on_device.is_capturable());
  EXPECT_THAT(experts.on_device.describe(),
              testing::HasSubstr("expert 1 rounds its inputs otherwise than expert 0"));
  expect_as_its_layers(shape, DType::kBf16, experts);
}

/// Many rows outside of a graph and in one: the same bits.
TEST_F(ExpertsGpuTest, ManyRowsAreTheSameInAGraph) {
  const Part kParts[] = {{{1, 128, 96, false}, PackedLayout::kU4Quad, 32},
                         {{1, 128, 96, false},
                          PackedLayout::kU4Quad,
                          96,
                          ZeroKind::kPoint,
                          false,
                          ActivationQuant::kS8Token}};
  for (const Part& part : kParts) {
    const ExpertsCase shape = {3, 2, 500, 96, 64};
    const Experts experts = packed_experts(shape, DType::kBf16, {part});
    SCOPED_TRACE(experts.on_device.describe());
    EXPECT_TRUE(experts.on_device.is_capturable());
    DeviceMatrix x(DType::kBf16, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
    const DeviceMatrix queued(DType::kF32, shape.M, shape.K),
        captured(DType::kF32, shape.M, shape.K);
    x.fill_normal(21);
    logits.fill_normal(22);
    DeviceArena small(experts.on_device.workspace_bytes(shape.M), "a test's workspace");
    const CudaContext context = {device_, stream_, small};
    const auto run = [&](const DeviceMatrix& y) {
      experts.on_device.run(context, x.matrix(), logits.matrix(), y.matrix());
    };
    run(queued);
    EXPECT_TRUE(queued.guards_are_intact(stream_));
    const CudaGraph graph = CudaGraph::capture(stream_, [&] { run(captured); });
    graph.launch(stream_);
    EXPECT_TRUE(captured.guards_are_intact(stream_));
    EXPECT_EQ(captured.get(stream_), queued.get(stream_));
  }
}

TEST_F(ExpertsGpuTest, RowsInTheirBitsDoNotDependOnTheBatchWhereAsked) {
  is_batch_invariant_ = true;
  const ExpertsCase shape = {4, 2, 600, 128, 192};
  const Part part = {{1, 384, 128, false}, PackedLayout::kU4Quad, 64};
  const Experts experts = packed_experts(shape, DType::kF16, {part});
  DeviceMatrix x(DType::kF16, shape.M, shape.K), logits(DType::kF32, shape.M, shape.E);
  const DeviceMatrix y(DType::kF16, shape.M, shape.K);
  x.fill_normal(1, 0.1f);
  logits.fill_normal(2);
  run(experts, x, logits, y);
  const std::vector<float> all = y.get(stream_);
  for (const int64_t m : {0, 1, 77, 599}) {
    const DeviceMatrix alone(DType::kF16, 1, shape.K);
    experts.on_device.run(context_, x.matrix().rows(m, m + 1), logits.matrix().rows(m, m + 1),
                          alone.matrix());
    const std::vector<float> got = alone.get(stream_);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + m * shape.K)) << "row " << m;
  }
}

}  // namespace
}  // namespace halley::cuda
