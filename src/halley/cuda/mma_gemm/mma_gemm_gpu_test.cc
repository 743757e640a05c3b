// Products by mma.sync of all kinds, tiles and parts of K, against f64 on the host, and bit for bit
// where sums are integers.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/mixed_gemm/testing/mixed_test_weight.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gemm_inputs.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

constexpr int kNumTiles = static_cast<int>(kMmaTiles.size());

class Product : public GemmInputs {
 public:
  Product(const RandomWeight& weight, int64_t M, bool has_bias = true)
      : GemmInputs(test_input_dtype(weight.source.kind), M, weight.source.N, weight.source.K,
                   has_bias),
        weight_(pack_mixed(weight.source)) {
    set_weights({.numbers = weight.numbers(/*are_rounded=*/true),
                 .scales = weight.scales,
                 .zeros = weight.offsets()});
  }

  MmaShape shape() const { return mma_shape(weight_, M_); }

  void queue(const CudaContext& context, const MmaPlan& plan, Matrix y) const {
    mma_gemm_planned(
        context, weight_,
        {.x = x(), .x_scales = {.x_scales = scales(), .x_sums = sums()}, .bias = bias()}, plan, y);
  }

  /// Runs the plan into a matrix of NaN with guards, and compares.
  void check(const CudaContext& context, const MmaPlan& plan, DType dtype = DType::kF32,
             int64_t y_gap = 16) {
    SCOPED_TRACE(str(weight_.kind, " ", N_, " x ", K_, ", groups of ", weight_.group_size, ", M ",
                     M_, ", ", plan, ", ", dtype, ", gap ", y_gap));
    const DeviceMatrix y(dtype, M_, N_, y_gap);
    queue(context, plan, y.matrix());
    expect_right(context.stream, y, dtype, /*has_equal_bits=*/true);
  }

 private:
  MixedWeight weight_;
};

class MmaGemm : public GpuTest {
 protected:
  MixedDevice mixed() const { return mixed_device(context_); }
};

TEST_F(MmaGemm, IsRightForEveryNumberOfRows) {
  for (const MixedKind kind : kMixedU4Kinds) {
    RandomWeight weight(kind, 264, 400, test_group_size(kind, 400, 128));
    for (const int64_t M : {1, 7, 8, 9, 16, 17, 63, 64, 65, 128, 129}) {
      Product product(weight, M);
      product.check(context_, plan_mma_gemm(product.shape(), mixed()));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MmaGemm, IsRightForEverySize) {
  for (const MixedKind kind : kMixedU4Kinds) {
    for (const int64_t N : {1, 8, 127, 129, 513}) {
      for (const int64_t K : {1, 16, 127, 128, 130, 896}) {
        RandomWeight weight(kind, N, K, K);
        for (const int64_t M : {5, 30}) {
          Product product(weight, M);
          product.check(context_, plan_mma_gemm(product.shape(), mixed()));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(MmaGemm, IsRightInEveryTileAndPart) {
  for (const MixedKind kind : kMixedU4Kinds) {
    RandomWeight weight(kind, 400, 1000, test_group_size(kind, 1000, 64));
    for (int tile = 0; tile < kNumTiles; ++tile) {
      const int tokens = kMmaTiles[static_cast<size_t>(tile)].tokens;
      for (const int64_t M : {1, tokens - 3, 2 * tokens + 9}) {
        Product product(weight, M);
        for (const int splits : {1, 2, 3, 8}) {
          product.check(context_, mma_plan_of(product.shape(), mixed(), tile, splits));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// With less shared memory than this GPU has, that of an L4 and of an A100 among them.
TEST_F(MmaGemm, RingsOfAllLengthsGoRoundManyTimes) {
  for (const MixedKind kind : kMixedU4Kinds) {
    RandomWeight weight(kind, 130, 4096, test_group_size(kind, 4096, 32));
    for (int tile = 0; tile < kNumTiles; ++tile) {
      Product product(weight, 40);
      for (const int shared_bytes : {60000, 101376, 166912}) {
        const MixedDevice device = {.num_sms = 72, .shared_bytes_max = shared_bytes};
        product.check(context_, mma_plan_of(product.shape(), device, tile, 1));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MmaGemm, IsRightForGroupsOfEverySize) {
  for (const MixedKind kind : {MixedKind::kU4GroupS8, MixedKind::kU4F16, MixedKind::kU4Bf16}) {
    for (const int64_t group_size : {32, 64, 128, 256, 600}) {
      RandomWeight weight(kind, 130, 600, group_size);
      for (const int64_t M : {3, 50, 150}) {
        Product product(weight, M);
        product.check(context_, plan_mma_gemm(product.shape(), mixed()));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MmaGemm, WritesAllTypesAndNarrowRows) {
  for (const MixedKind kind : kMixedU4Kinds) {
    RandomWeight weight(kind, 134, 640, test_group_size(kind, 640, 128));
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
      for (const int64_t gap : {10, 3}) {
        for (int tile = 0; tile < kNumTiles; ++tile) {
          Product product(weight, 37, /*has_bias=*/gap == 10);
          for (const int splits : {1, 2}) {
            product.check(context_, mma_plan_of(product.shape(), mixed(), tile, splits), dtype,
                          gap);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

/// Symmetric weights: no zeros in the source, all are 8.
TEST_F(MmaGemm, IsRightWithoutZeros) {
  for (const MixedKind kind : {MixedKind::kU4F16, MixedKind::kU4Bf16, MixedKind::kU4S8}) {
    RandomWeight weight(kind, 200, 512, test_group_size(kind, 512, 128));
    std::fill(weight.zeros.begin(), weight.zeros.end(), 8.0f);
    weight.source.zeros = {};
    Product product(weight, 20);
    product.check(context_, plan_mma_gemm(product.shape(), mixed()), DType::kF16);
  }
}

/// Numbers that 16 bits and f32 hold exactly, with both ends of codes and zeros: every place of the
/// layout counts.
TEST_F(MmaGemm, IsExactWhereNothingIsRounded) {
  for (const MixedKind kind : {MixedKind::kU4F16, MixedKind::kU4Bf16}) {
    RandomWeight weight(kind, 256, 512, 32);
    std::fill(weight.scales.begin(), weight.scales.end(), 1.0f);
    for (size_t i = 0; i < weight.codes.size(); i += 3) weight.codes[i] = i % 2 == 0 ? 15 : 0;
    for (size_t i = 0; i < weight.zeros.size(); i += 3) weight.zeros[i] = i % 2 == 0 ? 16 : 0;
    for (int tile = 0; tile < kNumTiles; ++tile) {
      Product product(weight, 130, /*has_bias=*/false);
      product.set_x(
          [](int64_t m, int64_t k) { return static_cast<float>((m * 31 + k * 7) % 17 - 8); });
      const DeviceMatrix y(DType::kF32, 130, 256);
      product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 2), y.matrix());
      const std::vector<float> got = y.get(stream_);
      for (int64_t m = 0; m < 130; ++m) {
        for (int64_t n = 0; n < 256; ++n) {
          int64_t sum = 0;
          for (int64_t k = 0; k < 512; ++k) {
            const auto number = static_cast<int64_t>(weight.operand(n, k));
            sum += number * ((m * 31 + k * 7) % 17 - 8);
          }
          ASSERT_EQ(got[static_cast<size_t>(m * 256 + n)], static_cast<float>(sum))
              << kind << " tile " << tile << " [" << m << ", " << n << "]";
        }
      }
    }
  }
}

TEST_F(MmaGemm, SumsOfS8AreExact) {
  for (const int code : {0, 8, 15}) {
    RandomWeight weight(MixedKind::kU4S8, 256, 4096, 4096);
    weight.set_all({.code = code, .zero = 8});
    for (const int x : {-128, 127}) {
      for (int tile = 0; tile < kNumTiles; ++tile) {
        Product product(weight, 20, /*has_bias=*/false);
        product.set_x([&](int64_t, int64_t) { return static_cast<float>(x); });
        product.set_scales_to_one();
        const DeviceMatrix y(DType::kF32, 20, 256);
        product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 3), y.matrix());
        for (const float value : y.get(stream_)) {
          ASSERT_EQ(value, static_cast<float>(4096 * (code - 8) * x));
        }
      }
    }
  }
}

TEST_F(MmaGemm, GroupsReachTheEndsOfS8) {
  for (const EndOfS8& end : kEndsOfS8) {
    RandomWeight weight(MixedKind::kU4GroupS8, 128, 512, 128);
    weight.set_all(end.codes);
    for (int tile = 0; tile < kNumTiles; ++tile) {
      Product product(weight, 3, /*has_bias=*/false);
      product.set_x([](int64_t, int64_t) { return -128.0f; });
      product.set_scales_to_one();
      const DeviceMatrix y(DType::kF32, 3, 128);
      product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 1), y.matrix());
      for (const float value : y.get(stream_)) {
        ASSERT_EQ(value, static_cast<float>(512 * -128 * end.number)) << end.number;
      }
    }
  }
}

TEST_F(MmaGemm, ARowThatIsNotFiniteSpoilsNoOther) {
  RandomWeight weight(MixedKind::kU4F16, 128, 256, 128);
  for (int tile = 0; tile < kNumTiles; ++tile) {
    Product product(weight, 20);
    product.set_x([](int64_t m, int64_t k) { return m == 7 && k == 3 ? INFINITY : 1.0f; });
    const DeviceMatrix y(DType::kF32, 20, 128);
    product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 1), y.matrix());
    const std::vector<float> got = y.get(stream_);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::isfinite(got[i]), i / 128 != 7) << i;
  }
}

/// The same plan, and every tile with the same parts of K.
TEST_F(MmaGemm, GivesTheSameBitsEveryTimeAndInEveryTile) {
  for (const MixedKind kind : kMixedU4Kinds) {
    RandomWeight weight(kind, 512, 4096, test_group_size(kind, 4096, 128));
    for (const int splits : {1, 5}) {
      std::vector<float> first;
      for (int tile = 0; tile < kNumTiles; ++tile) {
        const Product product(weight, 50);
        const MmaPlan plan = mma_plan_of(product.shape(), mixed(), tile, splits);
        for (int repeat = 0; repeat < 8; ++repeat) {
          const DeviceMatrix y(DType::kF32, 50, 512);
          product.queue(context_, plan, y.matrix());
          const std::vector<float> got = y.get(stream_);
          if (first.empty()) first = got;
          ASSERT_EQ(got, first) << kind << ", " << plan << ", repeat " << repeat;
        }
      }
    }
  }
}

TEST_F(MmaGemm, RunsInGraphs) {
  RandomWeight weight(MixedKind::kU4F16, 512, 2048, 128);
  Product one(weight, 1), many(weight, 130);
  const DeviceMatrix y_one(DType::kF32, 1, 512), y_many(DType::kF32, 130, 512);
  const CudaGraph graph = CudaGraph::capture(stream_, [&] {
    for (int i = 0; i < 10; ++i) {
      one.queue(context_, mma_plan_of(one.shape(), mixed(), 0, 4), y_one.matrix());
      many.queue(context_, mma_plan_of(many.shape(), mixed(), 1, 1), y_many.matrix());
    }
  });
  EXPECT_EQ(graph.num_nodes(), 30u);
  for (int replay = 0; replay < 3; ++replay) graph.launch(stream_);
  one.expect_right(stream_, y_one, DType::kF32, /*has_equal_bits=*/true);
  many.expect_right(stream_, y_many, DType::kF32, /*has_equal_bits=*/true);
}

TEST_F(MmaGemm, IsRightForALayerOfAModel) {
  for (const MixedKind kind : kMixedU4Kinds) {
    RandomWeight weight(kind, 2048, 4096, test_group_size(kind, 4096, 128));
    for (const int64_t M : {1, 20}) {
      Product product(weight, M);
      product.check(context_, plan_mma_gemm(product.shape(), mixed()), DType::kF16, 0);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace halley::cuda
