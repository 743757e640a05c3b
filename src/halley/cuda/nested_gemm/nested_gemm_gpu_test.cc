// Nested products of all tiles and schedules: the numbers bit for bit, the sums against f64.
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/hopper_tile/testing/forced_plans.h"
#include "halley/cuda/nested_gemm/testing/nested_test_weight.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {
namespace {

const int kNumTiles = static_cast<int>(nested_family().tiles.size());

std::vector<uint16_t> random_weight(int64_t N, int64_t K) {
  std::mt19937 random(static_cast<uint32_t>(N * 31 + K));
  std::normal_distribution<float> normal(0, 0.3f);
  std::vector<uint16_t> bits;
  for (int64_t i = 0; i < N * K; ++i) {
    bits.push_back(f32_to_f16(std::fmax(-1.75f, std::fmin(1.75f, normal(random)))));
  }
  return bits;
}

struct Sizes {
  int64_t M, N, K;
};

/// A weight, inputs and the exact product on the host.
class Product {
 public:
  Product(const CudaContext& context, const Sizes& sizes)
      : M(sizes.M),
        N(sizes.N),
        K(sizes.K),
        bits_(random_weight(N, K)),
        weight_(context, bits_, N, K),
        x_(DType::kF16, M, K, round_up<int64_t>(K, 8) - K + 8) {
    std::mt19937 random(static_cast<uint32_t>(M * 7 + K));
    std::uniform_int_distribution<int> codes(-128, 127);
    // Multiples of 1/16 below 8: exact.
    for (int64_t i = 0; i < M * K; ++i) x_values_.push_back(static_cast<float>(codes(random)) / 16);
    for (int64_t n = 0; n < N; ++n) bias_.push_back(static_cast<float>(codes(random)) / 32);
    x_.set(x_values_);
    device_bias_ = std::make_unique<DeviceArray<float>>(bias_);
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) expected_.push_back(expect(m, n));
    }
  }

  ProductShape shape() const { return {.M = M, .N = N, .K = K}; }

  void queue(const CudaContext& context, const TilePlan& plan, Matrix y,
             bool starts_early = false) const {
    const NestedOperands operands = {
        .x = x_.matrix(), .bias = device_bias_->data(), .starts_early = starts_early};
    nested_gemm_planned(context, weight_.weight(), operands, plan, y);
  }

  void expect_right(const CudaContext& context, const DeviceMatrix& y, DType dtype) const {
    const std::vector<float> got = y.get(context.stream);
    ASSERT_TRUE(y.guards_are_intact(context.stream));
    for (size_t i = 0; i < got.size(); ++i) {
      // Tensor cores add groups of products with a few bits less than f32.
      const double error_max =
          5e-5 * expected_[i].magnitude + half_step_of(dtype) * std::fabs(expected_[i].y) + 1e-7;
      ASSERT_LE(std::fabs(got[i] - expected_[i].y), error_max)
          << "[" << static_cast<int64_t>(i) / N << ", " << static_cast<int64_t>(i) % N
          << "]: expected " << expected_[i].y << ", got " << got[i];
    }
  }

  /// Runs the plan with outputs of a type, `y_gap` elements between rows, and compares.
  void check(const CudaContext& context, const TilePlan& plan, DType dtype,
             int64_t y_gap = 16) const {
    SCOPED_TRACE(str(plan, ", ", M, " x ", N, " x ", K, ", ", dtype));
    const DeviceMatrix y(dtype, M, N, y_gap);
    queue(context, plan, y.matrix());
    expect_right(context, y, dtype);
  }

  const int64_t M, N, K;

 private:
  struct Expected {
    double y = 0, magnitude = 0;
  };

  Expected expect(int64_t m, int64_t n) const {
    double sum = bias_[static_cast<size_t>(n)], magnitude = 0;
    for (int64_t k = 0; k < K; ++k) {
      const double product = double{x_values_[static_cast<size_t>(m * K + k)]} *
                             f16_to_f32(bits_[static_cast<size_t>(n * K + k)]);
      sum += product;
      magnitude += std::fabs(product);
    }
    return {sum, magnitude};
  }

  std::vector<uint16_t> bits_;
  NestedTestWeight weight_;
  DeviceMatrix x_;
  std::vector<float> x_values_, bias_;
  std::unique_ptr<DeviceArray<float>> device_bias_;
  std::vector<Expected> expected_;
};

using NestedGemm = HopperTest;

/// One input is 1, all others 0: outputs are the weights.
TEST_F(NestedGemm, JoinsAllNumbersBitForBit) {
  constexpr int64_t kInputs = 64, kOutputs = 512;
  std::vector<uint16_t> bits;
  for (uint32_t i = 0; i < kInputs * kOutputs; ++i) {
    const auto number = static_cast<uint16_t>((i & 0x4000u) << 1 | (i & 0x3FFFu));
    bits.push_back(can_split_f16(number) ? number : uint16_t{0});
  }
  const NestedTestWeight weight(context_, bits, kOutputs, kInputs);
  DeviceMatrix x(DType::kF16, kInputs, kInputs);
  std::vector<float> ones;
  for (int64_t i = 0; i < kInputs * kInputs; ++i) {
    ones.push_back(i / kInputs == i % kInputs ? 1.0f : 0.0f);
  }
  x.set(ones);
  for (int tile = 0; tile < kNumTiles; ++tile) {
    const DeviceMatrix y(DType::kF32, kInputs, kOutputs);
    nested_gemm_planned(
        context_, weight.weight(), {.x = x.matrix()},
        plan_one_tile(nested_family(), {.M = kInputs, .N = kOutputs, .K = kInputs}, device_, tile),
        y.matrix());
    const std::vector<float> got = y.get(stream_);
    for (int64_t n = 0; n < kOutputs; ++n) {
      for (int64_t k = 0; k < kInputs; ++k) {
        ASSERT_EQ(got[static_cast<size_t>(k * kOutputs + n)],
                  f16_to_f32(bits[static_cast<size_t>(n * kInputs + k)]))
            << "tile " << tile << ", output " << n << ", input " << k;
      }
    }
  }
}

TEST_F(NestedGemm, IsRightForAllTilesAndSizes) {
  for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{3, 130, 64}, Sizes{17, 264, 200},
                             Sizes{64, 128, 1024}, Sizes{130, 390, 328}, Sizes{300, 520, 517}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < kNumTiles; ++tile) {
      const TilePlan plan = plan_one_tile(nested_family(), product.shape(), device_, tile);
      product.check(context_, plan, DType::kF16);
      product.check(context_, plan, DType::kBf16, 3);
      product.check(context_, plan, DType::kF32);
    }
  }
}

TEST_F(NestedGemm, IsRightWhereTilesAreShared) {
  for (const Sizes& sizes : {Sizes{9, 300, 1000}, Sizes{150, 640, 2048}, Sizes{270, 300, 1536}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < kNumTiles; ++tile) {
      for (const int blocks : {2, 3, 7, 12, 16}) {
        const TilePlan plan =
            plan_shared_tile(nested_family(), product.shape(), device_, tile, blocks);
        product.check(context_, plan, DType::kF16);
        product.check(context_, plan, DType::kF32);
      }
    }
  }
}

/// Of a device so small that tiles are dealt in rounds, and what is left shared in every way.
TEST_F(NestedGemm, IsRightForAllPlans) {
  CudaDeviceInfo device = device_;
  device.num_sms = 7;
  for (const Sizes& sizes : {Sizes{9, 1000, 1500}, Sizes{280, 530, 1152}, Sizes{150, 140, 2048}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < kNumTiles; ++tile) {
      for (const TilePlan& plan : plans_of_tile(nested_family(), product.shape(), device, tile)) {
        product.check(context_, plan, DType::kF16);
        product.check(context_, plan, DType::kF32);
      }
    }
  }
}

/// Blocks of a cluster that each have some of a tile's inputs.
TEST_F(NestedGemm, IsRightWhereInputsAreSplit) {
  for (const Sizes& sizes : {Sizes{1, 130, 512}, Sizes{9, 300, 1000}, Sizes{70, 200, 700},
                             Sizes{250, 140, 1024}, Sizes{270, 300, 1536}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < kNumTiles; ++tile) {
      for (int split = 2; split <= kTileSplitMax; ++split) {
        const TilePlan plan =
            plan_split_tile(nested_family(), product.shape(), device_, tile, split);
        product.check(context_, plan, DType::kF16);
        product.check(context_, plan, DType::kBf16, 3);
        product.check(context_, plan, DType::kF32);
      }
    }
  }
}

/// Launch after launch in one graph, early starts included: the counters are zero again, and
/// nothing is read before it is written.
TEST_F(NestedGemm, RunsInGraphsAndStartsEarly) {
  const Product product(context_, {40, 384, 4096});
  const TilePlan shared = plan_shared_tile(nested_family(), product.shape(), device_, 1, 30);
  const TilePlan whole = plan_one_tile(nested_family(), product.shape(), device_, 2);
  const DeviceMatrix first(DType::kF16, product.M, product.N);
  const DeviceMatrix second(DType::kF16, product.M, product.N);
  const CudaGraph graph = CudaGraph::capture(stream_, [&] {
    for (int i = 0; i < 10; ++i) {
      product.queue(context_, shared, first.matrix(), i > 0);
      product.queue(context_, whole, second.matrix(), true);
    }
  });
  for (int i = 0; i < 3; ++i) graph.launch(stream_);
  product.expect_right(context_, first, DType::kF16);
  product.expect_right(context_, second, DType::kF16);
}

}  // namespace
}  // namespace halley::cuda
