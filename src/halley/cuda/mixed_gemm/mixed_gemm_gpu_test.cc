// Products of all kinds, tiles and schedules against f64 on the host.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mixed_gemm/testing/mixed_test_weight.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gemm_inputs.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

struct ProductOptions {
  DType y_dtype = DType::kF32;
  int64_t y_gap = 16;  // elements between rows of y
  bool has_bias = true;
};

/// With outputs of its own.
class Product : public GemmInputs {
 public:
  Product(const RandomWeight& weight, int64_t M, const ProductOptions& options = {})
      : GemmInputs(test_input_dtype(weight.source.kind), M, weight.source.N, weight.source.K,
                   options.has_bias),
        options_(options),
        source_(weight),
        weight_(pack_mixed(weight.source)),
        y_(options.y_dtype, M, N_, options.y_gap) {
    use_numbers(/*are_rounded=*/true);
  }

  MixedShape shape() const { return mixed_shape(weight_, M_); }

  void queue(const CudaContext& context, const MixedPlan& plan, bool starts_early = false) {
    // With few rows, groups are scaled behind the tensor cores.
    const bool are_rounded = !plan.is_narrow && are_weights_rounded(plan.tile, weight_.group_size);
    if (are_rounded != are_rounded_) use_numbers(are_rounded);
    mixed_gemm_planned(context, weight_,
                       {.x = x(),
                        .x_scales = {.x_scales = scales(), .x_sums = sums()},
                        .bias = bias(),
                        .starts_early = starts_early},
                       plan, y_.matrix());
  }

  std::vector<float> get(const CudaContext& context) const { return y_.get(context.stream); }
  /// NaN again.
  void poison() { y_.set(std::vector<float>(static_cast<size_t>(M_ * N_), std::nanf(""))); }

  void expect_right(const CudaContext& context) {
    GemmInputs::expect_right(context.stream, y_, options_.y_dtype);
  }

 private:
  void use_numbers(bool are_rounded) {
    are_rounded_ = are_rounded;
    set_weights({.numbers = source_.numbers(are_rounded),
                 .scales = source_.scales,
                 .zeros = source_.offsets()});
  }

  ProductOptions options_;
  const RandomWeight& source_;
  MixedWeight weight_;
  DeviceMatrix y_;
  bool are_rounded_ = true;
};

struct Sizes {
  int64_t N, K, group_size;
};

class MixedGemm : public HopperTest {
 protected:
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
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 264, 400, test_group_size(kind, 400, 128));
    for (const int64_t M :
         {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 191, 257, 300}) {
      expect_right(weight, M);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MixedGemm, IsRightForEverySize) {
  for (const MixedKind kind : kMixedKinds) {
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
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 400, 1000, test_group_size(kind, 1000, 64));
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
  for (const MixedKind kind : kMixedKinds) {
    for (const auto& [N, K, group_size] :
         {Sizes{1, 64, 64}, Sizes{33, 190, 64}, Sizes{130, 1088, 32}, Sizes{64, 2048, 128},
          Sizes{96, 8256, 256}, Sizes{6000, 640, 128}}) {
      RandomWeight weight(kind, N, K, test_group_size(kind, K, group_size));
      for (const int64_t M : {1, 2, 3, 5, 8}) {
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
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 8500, 2200, test_group_size(kind, 2200, 64));
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

TEST_F(MixedGemm, FewRowsHaveTheSameBitsInEveryBatch) {
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 200, 2000, test_group_size(kind, 2000, 128));
    // Of 16 bits, one and two rows are multiplied as digits, more of them not.
    for (const auto& batches : {std::vector<int64_t>{2, 1}, std::vector<int64_t>{8, 3, 4, 5}}) {
      std::vector<float> expected;
      for (const int64_t M : batches) {
        Product product(weight, M, {.has_bias = false});  // a bias is another one for every M
        product.set_x(
            [](int64_t m, int64_t k) { return static_cast<float>((m * 31 + k * 7) % 61); });
        product.set_scales_to_one();
        product.queue(context_, narrow_mixed_plan(product.shape(), mixed_device(context_)));
        const std::vector<float> got = product.get(context_);
        if (expected.empty()) expected = got;
        ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin())) << kind << ", M " << M;
      }
    }
  }
}

/// Each product reads what the one before it has written, while weights of the next are fetched.
TEST_F(MixedGemm, FewRowsWaitForTheirInputsWhereTheyStartEarly) {
  RandomWeight source(MixedKind::kU4F16, 2560, 2560, 128);
  const MixedWeight weight(pack_mixed(source.source));
  for (const int64_t M : {1, 3}) {
    DeviceMatrix x(DType::kF16, M, 2560), even(DType::kF16, M, 2560), odd(DType::kF16, M, 2560);
    x.fill_normal(5, 0.005f);
    const MixedPlan plan = narrow_mixed_plan(mixed_shape(weight, M), mixed_device(context_));
    const auto queue_all = [&](bool starts_early) {
      const auto queue = [&](ConstMatrix from, Matrix to) {
        mixed_gemm_planned(context_, weight, {.x = from, .starts_early = starts_early}, plan, to);
      };
      queue(x.matrix(), even.matrix());
      queue(even.matrix(), odd.matrix());
      queue(odd.matrix(), even.matrix());
    };
    queue_all(false);
    const std::vector<float> expected = even.get(stream_);
    const CudaGraph graph = CudaGraph::capture(stream_, [&] {
      for (int i = 0; i < 10; ++i) queue_all(true);
    });
    for (int replay = 0; replay < 3; ++replay) {
      for (DeviceMatrix* y : {&even, &odd}) {
        y->set(std::vector<float>(static_cast<size_t>(M * 2560), std::nanf("")));
      }
      graph.launch(stream_);
      ASSERT_EQ(even.get(stream_), expected) << "M " << M;
    }
  }
}

TEST_F(MixedGemm, IsRightForGroupsOfEverySize) {
  for (const MixedKind kind : kMixedKinds) {
    if (kind == MixedKind::kU4S8) continue;
    for (const int64_t group_size : {32, 64, 128, 256, 600}) {
      RandomWeight weight(kind, 130, 600, group_size);
      expect_right(weight, 3);
      expect_right(weight, 30);
      expect_right(weight, 150);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MixedGemm, WritesAllTypesAndNarrowRows) {
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 136, 256, 256);
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
      for (const int64_t gap : {8, 3}) {
        for (const int64_t M : {4, 27, 90, 260}) {
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
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 1100, 700, test_group_size(kind, 700, 128));
    for (const MixedTiling& tiling :
         {MixedTiling{0, 2, 2}, MixedTiling{1, 4, 1}, MixedTiling{2, 3, 2}, MixedTiling{4, 2, 1},
          MixedTiling{3, 5, 1}, MixedTiling{6, 4, 2}, MixedTiling{7, 3, 2}}) {
      Product product(weight, 150);
      if (!can_tile(product.shape(), mixed_device(context_), tiling)) continue;
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

/// On few SMs givers and owners have whole tiles too. Launches follow each other: the
/// counters are zero again.
TEST_F(MixedGemm, BlocksShareTheLastTiles) {
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 1100, 1500, test_group_size(kind, 1500, 128));
    for (const int64_t M : {10, 150}) {
      Product product(weight, M);
      MixedDevice device = mixed_device(context_);
      for (const int SMs : {5, 7, 132}) {
        device.num_sms = SMs;
        for (const MixedTiling& tiling : mixed_tilings(product.shape(), device)) {
          if (!tiling.shares_last_tiles) continue;
          const MixedPlan plan = tiled_mixed_plan(product.shape(), device, tiling);
          SCOPED_TRACE(str(kind, ", M ", M, ", ", plan));
          product.poison();
          for (const bool starts_early : {false, true, true}) {
            product.queue(context_, plan, starts_early);
          }
          product.expect_right(context_);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(MixedGemm, RingsGoRoundManyTimes) {
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 256, 8192, test_group_size(kind, 8192, 128));
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
    weight.set_all({.code = code, .zero = 8});
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
  for (const EndOfS8& end : kEndsOfS8) {
    RandomWeight weight(MixedKind::kU4GroupS8, 128, 512, 128);
    weight.set_all(end.codes);
    Product product(weight, 3, {.has_bias = false});
    product.set_x([](int64_t, int64_t) { return -128.0f; });
    product.set_scales_to_one();
    product.queue(context_, plan_for(product));
    for (const float y : product.get(context_)) {
      ASSERT_EQ(y, static_cast<float>(512 * -128 * end.number)) << end.number;
    }
  }
}

/// Those of numbers that are 128 too large do, and come back.
TEST_F(MixedGemm, SumsOfGroupsMayLeave32BitsOnTheWay) {
  constexpr int kInputs = 70016;
  RandomWeight weight(MixedKind::kU4GroupS8, 128, kInputs, 128);
  weight.set_all({.code = 15, .zero = 0, .group_scale = 8});
  for (const int64_t M : {3, 20}) {
    Product product(weight, M, {.has_bias = false});
    product.set_x([](int64_t, int64_t) { return 127.0f; });
    product.set_scales_to_one();
    product.queue(context_, plan_for(product));
    for (const float y : product.get(context_)) {
      ASSERT_EQ(y, static_cast<float>(kInputs * 127 * 120));
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
  for (const MixedKind kind : kMixedKinds) {
    RandomWeight weight(kind, 512, 4096, test_group_size(kind, 4096, 128));
    for (const int64_t M : {9, 50}) {
      Product product(weight, M);
      for (const bool shares_last_tiles : {false, true}) {
        const MixedTiling tiling = {.tile_index = M == 9 ? 1 : 2,
                                    .num_ranks = shares_last_tiles ? 1 : 4,
                                    .shares_last_tiles = shares_last_tiles};
        if (!can_tile(product.shape(), mixed_device(context_), tiling)) continue;
        const MixedPlan plan = tiled_mixed_plan(product.shape(), mixed_device(context_), tiling);
        product.queue(context_, plan);
        const std::vector<float> first = product.get(context_);
        for (int repeat = 0; repeat < 20; ++repeat) {
          product.poison();
          product.queue(context_, plan);
          ASSERT_EQ(product.get(context_), first) << kind << ", " << plan << ", repeat " << repeat;
        }
      }
    }
  }
}

TEST_F(MixedGemm, ARowHasTheSameBitsInEveryBatchWithThePlanForThat) {
  for (const MixedKind kind : {MixedKind::kU4F16, MixedKind::kU8F16}) {
    RandomWeight weight(kind, 400, 2000, 128);
    std::vector<float> expected;
    for (const int64_t M : {1, 9, 64, 200}) {
      Product product(weight, M, {.has_bias = false});  // a bias is another one for every M
      product.set_x([](int64_t m, int64_t k) { return static_cast<float>((m * 31 + k * 7) % 61); });
      product.queue(context_, invariant_mixed_plan(product.shape(), mixed_device(context_)));
      std::vector<float> got = product.get(context_);
      got.resize(400);
      if (expected.empty()) expected = got;
      ASSERT_EQ(got, expected) << kind << ", M " << M;
    }
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
void expect_chains(const CudaContext& context, const MixedWeight& weight, const MixedPlan& plan,
                   int64_t M) {
  const int64_t size = weight.K;
  DeviceMatrix x(DType::kF16, M, size), between(DType::kF16, M, size), y(DType::kF32, M, size);
  x.fill_normal(5, 0.05f);
  const auto queue_both = [&](bool starts_early) {
    mixed_gemm_planned(context, weight, {.x = x.matrix(), .starts_early = starts_early}, plan,
                       between.matrix());
    mixed_gemm_planned(context, weight, {.x = between.matrix(), .starts_early = starts_early}, plan,
                       y.matrix());
  };
  queue_both(false);
  const std::vector<float> expected = y.get(context.stream);
  const CudaGraph graph = CudaGraph::capture(context.stream, [&] {
    for (int i = 0; i < 10; ++i) queue_both(true);
  });
  for (int replay = 0; replay < 3; ++replay) {
    between.set(std::vector<float>(static_cast<size_t>(M * size), std::nanf("")));
    y.set(std::vector<float>(static_cast<size_t>(M * size), std::nanf("")));
    graph.launch(context.stream);
    ASSERT_EQ(y.get(context.stream), expected) << "M " << M << ", " << plan;
  }
}

TEST_F(MixedGemm, WaitsForItsInputsWhereItStartsEarly) {
  RandomWeight source(MixedKind::kU4F16, 1024, 1024, 128);
  const MixedWeight weight(pack_mixed(source.source));
  for (const int64_t M : {1, 30, 130}) {
    const MixedPlan plan = plan_mixed_gemm(mixed_shape(weight, M), mixed_device(context_));
    expect_chains(context_, weight, plan, M);
  }
}

/// The launches have slots and counters in common.
TEST_F(MixedGemm, GiversWaitForTheLaunchAheadWhereTheyStartEarly) {
  RandomWeight source(MixedKind::kU4F16, 2048, 2048, 128);
  const MixedWeight weight(pack_mixed(source.source));
  for (const int64_t M : {16, 130}) {
    const MixedShape shape = mixed_shape(weight, M);
    int num_plans = 0;
    for (const MixedTiling& tiling : mixed_tilings(shape, mixed_device(context_))) {
      if (!tiling.shares_last_tiles) continue;
      expect_chains(context_, weight, tiled_mixed_plan(shape, mixed_device(context_), tiling), M);
      ++num_plans;
    }
    EXPECT_GT(num_plans, 0) << "M " << M;
  }
}

}  // namespace
}  // namespace halley::cuda
