// Products of all kinds, tiles and schedules against f64 on the host.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_test_weight.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

constexpr MixedKind kKinds[] = {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16,
                                MixedKind::kU4Bf16};

/// Largest error relative to the sum of |x w|, before the output is rounded: tensor cores add
/// groups of products of 16 bits with a few bits less than f32; sums of s8 are exact, their scales
/// a few operations in f32.
double error_max_of(MixedKind kind) { return is_s8(kind) ? 1e-6 : 5e-5; }

/// Half a step of the output's type.
double output_error_of(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBf16 ? 0x1p-8 : 0x1p-23;
}

DType x_dtype_of(MixedKind kind) {
  if (is_s8(kind)) return DType::kI8;
  return kind == MixedKind::kU4F16 ? DType::kF16 : DType::kBf16;
}

struct ProductOptions {
  DType y_dtype = DType::kF32;
  int64_t y_gap = 16;  // elements between rows of y
  bool has_bias = true;
};

/// One weight and inputs on the host and the device.
class Product {
 public:
  Product(RandomWeight& weight, int64_t M, const ProductOptions& options = {})
      : weight_(weight),
        options_(options),
        M_(M),
        N_(weight.source.N),
        K_(weight.source.K),
        packed_(pack_mixed(weight.source)),
        device_weight_(packed_),
        x_(x_dtype_of(weight.source.kind), M, K_, round_up<int64_t>(K_, 16) - K_ + 16),
        y_(options.y_dtype, M, N_, options.y_gap) {
    std::mt19937 random(static_cast<uint32_t>(M * 7 + K_));
    std::uniform_int_distribution<int> codes(-128, 127);
    for (int64_t i = 0; i < M * K_; ++i) {
      // Multiples of 1/16 below 8: exact in all types.
      x_values_.push_back(static_cast<float>(codes(random)) / (is_s8(kind()) ? 1 : 16));
    }
    std::uniform_real_distribution<float> scales(0x1p-14f, 0x1p-13f);
    for (int64_t m = 0; m < M; ++m) x_scales_.push_back(scales(random));
    for (int64_t n = 0; n < N_; ++n) bias_.push_back(static_cast<float>(codes(random)) / 32);
    upload();
  }

  void set_x(const std::function<float(int64_t, int64_t)>& value) {
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t k = 0; k < K_; ++k) x_values_[static_cast<size_t>(m * K_ + k)] = value(m, k);
    }
    upload();
  }
  void set_scales_to_one() {
    std::fill(x_scales_.begin(), x_scales_.end(), 1.0f);
    upload();
  }

  MixedShape shape() const { return mixed_shape(device_weight_, M_); }

  void queue(const CudaContext& context, const MixedPlan& plan, bool starts_early = false) {
    if (plan.is_narrow != has_exact_weights_) expected_.clear();
    has_exact_weights_ = plan.is_narrow;
    MixedOperands operands = {.x = x_.matrix(), .starts_early = starts_early};
    if (is_s8(kind())) {
      operands.x_scales = {.x_scales = device_scales_->data(), .x_sums = device_sums_->data()};
    }
    if (options_.has_bias) operands.bias = device_bias_->data();
    mixed_gemm_planned(context, device_weight_, operands, plan, y_.matrix());
  }

  std::vector<float> get(const CudaContext& context) const { return y_.get(context.stream); }
  /// NaN again.
  void poison() { y_.set(std::vector<float>(static_cast<size_t>(M_ * N_), std::nanf(""))); }

  void expect_right(const CudaContext& context) {
    const std::vector<float> got = y_.get(context.stream);
    ASSERT_TRUE(y_.guards_are_intact(context.stream));
    make_expected();
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t n = 0; n < N_; ++n) {
        const Expected expected = expected_[static_cast<size_t>(m * N_ + n)];
        const double value = got[static_cast<size_t>(m * N_ + n)];
        const double error_max = error_max_of(kind()) * expected.magnitude +
                                 output_error_of(options_.y_dtype) * std::fabs(expected.y) + 1e-7;
        ASSERT_LE(std::fabs(value - expected.y), error_max)
            << "[" << m << ", " << n << "]: expected " << expected.y << ", got " << value;
      }
    }
  }

 private:
  struct Expected {
    double y = 0, magnitude = 0;
  };

  MixedKind kind() const { return weight_.source.kind; }

  void upload() {
    x_.set(x_values_);
    std::vector<int32_t> sums;
    for (int64_t m = 0; m < M_; ++m) {
      float sum = 0;
      for (int64_t k = 0; k < K_; ++k) sum += x_values_[static_cast<size_t>(m * K_ + k)];
      sums.push_back(static_cast<int32_t>(sum));
    }
    device_scales_ = std::make_unique<DeviceArray<float>>(x_scales_);
    device_sums_ = std::make_unique<DeviceArray<int32_t>>(sums);
    device_bias_ = std::make_unique<DeviceArray<float>>(bias_);
  }

  /// The weight's numbers without the scales of outputs, and codes less their zeros of kU4S8.
  void make_operands() {
    operands_.clear();
    for (int64_t n = 0; n < N_; ++n) {
      for (int64_t k = 0; k < K_; ++k) {
        float operand = has_exact_weights_ ? weight_.number(n, k) : weight_.operand(n, k);
        if (kind() == MixedKind::kU4S8) {
          operand = weight_.number(n, k) + 8 - weight_.zeros[static_cast<size_t>(n)];
        }
        operands_.push_back(operand);
      }
    }
  }

  void make_expected() {
    if (!expected_.empty()) return;
    make_operands();
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t n = 0; n < N_; ++n) expected_.push_back(expect(m, n));
    }
  }

  Expected expect(int64_t m, int64_t n) const {
    const float* x = x_values_.data() + m * K_;
    const float* w = operands_.data() + n * K_;
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < K_; ++k) {
      const double product = double{x[k]} * w[k];
      sum += product;
      magnitude += std::fabs(product);
    }
    double scale = 1;
    if (is_s8(kind())) {
      scale = double{weight_.scales[static_cast<size_t>(n)]} * x_scales_[static_cast<size_t>(m)];
      // Offsets are taken from larger sums.
      magnitude += 16.0 * 128 * static_cast<double>(K_);
    }
    const double bias = options_.has_bias ? bias_[static_cast<size_t>(n)] : 0;
    return {scale * sum + bias, std::fabs(scale) * magnitude + std::fabs(bias)};
  }

  RandomWeight& weight_;
  ProductOptions options_;
  int64_t M_, N_, K_;
  MixedPacked packed_;
  MixedWeight device_weight_;
  DeviceMatrix x_, y_;
  std::vector<float> x_values_, x_scales_, bias_, operands_;
  std::vector<Expected> expected_;  // made at the first comparison
  bool has_exact_weights_ = false;  // with few rows, groups are scaled behind the tensor cores
  std::unique_ptr<DeviceArray<float>> device_scales_, device_bias_;
  std::unique_ptr<DeviceArray<int32_t>> device_sums_;
};

struct Sizes {
  int64_t N, K, group_size;
};

class MixedGemm : public GpuTest {
 protected:
  void SetUp() override {
    if (device_.compute_major != 9 || device_.compute_minor != 0) {
      GTEST_SKIP() << "needs compute capability 9.0, the GPU has " << device_.compute_major << "."
                   << device_.compute_minor;
    }
  }

  MixedPlan plan_for(const Product& product) const {
    return plan_mixed_gemm(product.shape(), mixed_device(context_));
  }

  void expect_right(RandomWeight& weight, int64_t M, const ProductOptions& options = {}) {
    Product product(weight, M, options);
    const MixedPlan plan = plan_for(product);
    SCOPED_TRACE(str(weight.source.kind, " ", weight.source.N, " x ", weight.source.K, ", M ", M,
                     ", ", plan));
    product.queue(context_, plan);
    product.expect_right(context_);
  }
};

TEST_F(MixedGemm, IsRightForEveryNumberOfRows) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 264, 400, kind == MixedKind::kU4S8 ? 400 : 128);
    for (const int64_t M :
         {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 191, 257, 300}) {
      expect_right(weight, M);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MixedGemm, IsRightForEverySize) {
  for (const MixedKind kind : kKinds) {
    for (const int64_t N : {1, 8, 127, 129, 513}) {
      for (const int64_t K : {1, 16, 127, 128, 130, 896}) {
        RandomWeight weight(kind, N, K, K);
        expect_right(weight, 5);
        expect_right(weight, 70);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MixedGemm, IsRightInEveryTileAndSchedule) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 400, 1000, kind == MixedKind::kU4S8 ? 1000 : 64);
    for (size_t tile = 0; tile < kMixedTiles.size(); ++tile) {
      const int index = static_cast<int>(tile);
      const int tokens = kMixedTiles[tile].tokens;
      for (const int64_t M : {1, tokens - 3, tokens + 3, 2 * tokens + 9}) {
        Product product(weight, M);
        for (const MixedTiling& tiling : mixed_tilings(product.shape(), mixed_device(context_))) {
          if (tiling.tile_index != index) continue;
          const MixedPlan plan = tiled_mixed_plan(product.shape(), mixed_device(context_), tiling);
          SCOPED_TRACE(str(kind, ", M ", M, ", ", plan));
          product.poison();
          product.queue(context_, plan);
          product.expect_right(context_);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(MixedGemm, IsRightForFewRows) {
  for (const MixedKind kind : kKinds) {
    for (const auto& [N, K, group_size] :
         {Sizes{1, 64, 64}, Sizes{33, 190, 64}, Sizes{130, 1088, 32}, Sizes{64, 2048, 128},
          Sizes{96, 8256, 256}, Sizes{6000, 640, 128}}) {
      RandomWeight weight(kind, N, K, kind == MixedKind::kU4S8 ? K : group_size);
      for (const int64_t M : {1, 2, 5, 8}) {
        Product product(weight, M);
        SCOPED_TRACE(str(kind, " ", N, " x ", K, ", M ", M));
        product.queue(context_, narrow_mixed_plan(product.shape(), mixed_device(context_)));
        product.expect_right(context_);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MixedGemm, IsRightForFewRowsInEveryRing) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 8500, 2200, kind == MixedKind::kU4S8 ? 2200 : 64);
    for (const int64_t M : {1, 7}) {
      Product product(weight, M);
      for (int rows = 1; rows <= kNarrowRows; ++rows) {
        for (const int kilobytes : {1, 100, 160, 227}) {
          const MixedPlan plan =
              narrow_mixed_plan(product.shape(), mixed_device(context_), rows, kilobytes * 1024);
          if (plan.narrow.num_bytes > mixed_device(context_).shared_bytes_max) continue;
          SCOPED_TRACE(str(kind, ", M ", M, ", ", plan));
          product.poison();
          product.queue(context_, plan, kilobytes == 100);
          product.expect_right(context_);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(MixedGemm, IsRightForGroupsOfEverySize) {
  for (const MixedKind kind : {MixedKind::kU4GroupS8, MixedKind::kU4F16, MixedKind::kU4Bf16}) {
    for (const int64_t group_size : {32, 64, 128, 256, 600}) {
      RandomWeight weight(kind, 130, 600, group_size);
      expect_right(weight, 3);
      expect_right(weight, 150);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MixedGemm, WritesAllTypesAndNarrowRows) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 136, 256, 256);
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
      for (const int64_t gap : {8, 3}) {
        for (const int64_t M : {4, 90, 260}) {
          SCOPED_TRACE(str(dtype, ", gap ", gap));
          expect_right(weight, M, {.y_dtype = dtype, .y_gap = gap, .has_bias = gap == 8});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Blocks of clusters that have several tiles each.
TEST_F(MixedGemm, ClustersGoFromTileToTile) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 1100, 700, kind == MixedKind::kU4S8 ? 700 : 128);
    for (const MixedTiling& tiling :
         {MixedTiling{0, 2, 2}, MixedTiling{1, 4, 1}, MixedTiling{2, 3, 2}, MixedTiling{4, 2, 1},
          MixedTiling{3, 5, 1}}) {
      Product product(weight, 150);
      MixedPlan plan = tiled_mixed_plan(product.shape(), mixed_device(context_), tiling);
      plan.schedule.num_blocks = 2 * tiling.num_ranks;
      SCOPED_TRACE(str(kind, ", ", plan));
      product.poison();
      product.queue(context_, plan, tiling.num_ranks > 2);
      product.expect_right(context_);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MixedGemm, RingsGoRoundManyTimes) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 256, 8192, kind == MixedKind::kU4S8 ? 8192 : 128);
    for (size_t tile = 0; tile < kMixedTiles.size(); ++tile) {
      Product product(weight, 40);
      for (const int num_ranks : {1, 5, 8}) {
        const MixedTiling tiling = {static_cast<int>(tile), num_ranks};
        if (!can_tile(product.shape(), mixed_device(context_), tiling)) continue;
        const MixedPlan plan = tiled_mixed_plan(product.shape(), mixed_device(context_), tiling);
        SCOPED_TRACE(str(kind, ", ", plan));
        product.queue(context_, plan);
        product.expect_right(context_);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MixedGemm, SumsOfS8AreExact) {
  for (const int code : {0, 8, 15}) {
    RandomWeight weight(MixedKind::kU4S8, 256, 4096, 4096);
    std::fill(weight.codes.begin(), weight.codes.end(), static_cast<uint8_t>(code));
    std::fill(weight.zeros.begin(), weight.zeros.end(), 8.0f);
    std::fill(weight.scales.begin(), weight.scales.end(), 1.0f);
    for (const int x : {-128, 127}) {
      Product product(weight, 20, {.has_bias = false});
      product.set_x([&](int64_t, int64_t) { return static_cast<float>(x); });
      product.set_scales_to_one();
      product.queue(context_, plan_for(product));
      for (const float y : product.get(context_)) {
        ASSERT_EQ(y, static_cast<float>(4096 * (code - 8) * x));
      }
    }
  }
}

TEST_F(MixedGemm, GroupsReachTheEndsOfS8) {
  // The ends of s8 with the largest scale that fits: nothing is carried between bytes.
  struct Case {
    int scale, zero, code, number;
  };
  for (const Case& c : {Case{16, 8, 0, -128}, Case{17, 7, 14, 119}, Case{8, 0, 15, 120},
                        Case{127, 1, 2, 127}, Case{255, 0, 0, 0}, Case{0, 16, 15, 0}}) {
    RandomWeight weight(MixedKind::kU4GroupS8, 128, 512, 128);
    std::fill(weight.codes.begin(), weight.codes.end(), static_cast<uint8_t>(c.code));
    std::fill(weight.zeros.begin(), weight.zeros.end(), static_cast<float>(c.zero));
    std::fill(weight.group_scales.begin(), weight.group_scales.end(),
              static_cast<uint8_t>(c.scale));
    std::fill(weight.scales.begin(), weight.scales.end(), 1.0f);
    Product product(weight, 3, {.has_bias = false});
    product.set_x([](int64_t, int64_t) { return -128.0f; });
    product.set_scales_to_one();
    product.queue(context_, plan_for(product));
    for (const float y : product.get(context_)) {
      ASSERT_EQ(y, static_cast<float>(512 * -128 * c.number)) << c.scale << " " << c.code;
    }
  }
}

TEST_F(MixedGemm, ARowThatIsNotFiniteSpoilsNoOther) {
  RandomWeight weight(MixedKind::kU4F16, 128, 256, 128);
  Product product(weight, 20);
  product.set_x([](int64_t m, int64_t k) { return m == 7 && k == 3 ? INFINITY : 1.0f; });
  product.queue(context_, plan_for(product));
  const std::vector<float> got = product.get(context_);
  for (size_t i = 0; i < got.size(); ++i) {
    if (i / 128 != 7) {
      ASSERT_TRUE(std::isfinite(got[i])) << i;
    }
  }
}

TEST_F(MixedGemm, GivesTheSameBitsEveryTime) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 512, 4096, kind == MixedKind::kU4S8 ? 4096 : 128);
    for (const int64_t M : {9, 50}) {
      Product product(weight, M);
      const MixedPlan plan =
          tiled_mixed_plan(product.shape(), mixed_device(context_), {M == 9 ? 1 : 2, 4});
      product.queue(context_, plan);
      const std::vector<float> first = product.get(context_);
      for (int repeat = 0; repeat < 20; ++repeat) {
        product.poison();
        product.queue(context_, plan);
        ASSERT_EQ(product.get(context_), first) << kind << ", repeat " << repeat;
      }
    }
  }
}

TEST_F(MixedGemm, ARowHasTheSameBitsInEveryBatchWithThePlanForThat) {
  RandomWeight weight(MixedKind::kU4F16, 400, 2000, 128);
  std::vector<float> expected;
  for (const int64_t M : {1, 9, 64, 200}) {
    Product product(weight, M, {.has_bias = false});  // a bias is another one for every M
    product.set_x([](int64_t m, int64_t k) { return static_cast<float>((m * 31 + k * 7) % 61); });
    product.queue(context_, invariant_mixed_plan(product.shape(), mixed_device(context_)));
    std::vector<float> got = product.get(context_);
    got.resize(400);
    if (expected.empty()) expected = got;
    ASSERT_EQ(got, expected) << "M " << M;
  }
}

TEST_F(MixedGemm, RunsInGraphs) {
  RandomWeight weight(MixedKind::kU4F16, 512, 2048, 128);
  Product one(weight, 1), many(weight, 130);
  const CudaGraph graph = CudaGraph::capture(stream_, [&] {
    for (int i = 0; i < 10; ++i) {
      one.queue(context_, plan_for(one));
      many.queue(context_, plan_for(many));
    }
  });
  EXPECT_EQ(graph.num_nodes(), 20u);
  for (int replay = 0; replay < 3; ++replay) {
    one.poison();
    many.poison();
    graph.launch(stream_);
    one.expect_right(context_);
    many.expect_right(context_);
  }
}

/// x2 = f16(x w), y = x2 w, with launches that start early; the weights are the same.
TEST_F(MixedGemm, WaitsForItsInputsWhereItStartsEarly) {
  RandomWeight source(MixedKind::kU4F16, 1024, 1024, 128);
  const MixedWeight weight(pack_mixed(source.source));
  for (const int64_t M : {1, 30, 130}) {
    DeviceMatrix x(DType::kF16, M, 1024), between(DType::kF16, M, 1024);
    DeviceMatrix y(DType::kF32, M, 1024);
    x.fill_normal(5, 0.05f);
    const auto queue_both = [&](bool starts_early) {
      mixed_gemm(context_, weight, {.x = x.matrix(), .starts_early = starts_early},
                 between.matrix());
      mixed_gemm(context_, weight, {.x = between.matrix(), .starts_early = starts_early},
                 y.matrix());
    };
    queue_both(false);
    const std::vector<float> expected = y.get(stream_);
    const CudaGraph graph = CudaGraph::capture(stream_, [&] {
      for (int i = 0; i < 10; ++i) queue_both(true);
    });
    for (int replay = 0; replay < 3; ++replay) {
      between.set(std::vector<float>(static_cast<size_t>(M * 1024), std::nanf("")));
      y.set(std::vector<float>(static_cast<size_t>(M * 1024), std::nanf("")));
      graph.launch(stream_);
      ASSERT_EQ(y.get(stream_), expected) << "M " << M;
    }
  }
}

}  // namespace
}  // namespace halley::cuda
