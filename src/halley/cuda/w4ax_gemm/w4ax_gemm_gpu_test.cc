// W4Ax products of all tiles and schedules against f64 on the host.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/hopper_tile/testing/forced_plans.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/block_inputs.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/testing/w4ax_test_weight.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {
namespace {

using Sizes = BlockInputs::Sizes;

/// Of a fifth of the blocks 8 bits.
BlockInputs::Options options_of(int64_t K) {
  const int64_t blocks = ceil_div(K, BlockInputs::kBlock);
  return {.num_s8_inputs = (blocks / 5 + 1) * BlockInputs::kBlock};
}

class Product : public BlockInputs {
 public:
  Product(const CudaContext& context, const Sizes& sizes)
      : Product(context, sizes, options_of(sizes.K)) {}
  Product(const CudaContext& context, const Sizes& sizes, const Options& options)
      : BlockInputs(sizes, options, kW4axTokenPadding), weight_(context, N, K) {
    put_w4ax(context, codes(), w_scales(), weight_);
  }

  ProductShape shape() const { return {.M = M, .N = N, .K = K}; }

  void queue(const CudaContext& context, const TilePlan& plan, Matrix y,
             bool starts_early = false) const {
    const W4axOperands operands = {.x = x(),
                                   .x_scales = x_scales(),
                                   .x_scales_pitch = x_scales_pitch,
                                   .bias = bias(),
                                   .starts_early = starts_early};
    w4ax_gemm_planned(context, weight_, operands, plan, y);
  }

  void queue_narrow(const CudaContext& context, Matrix y, bool starts_early = false) const {
    w4ax_gemm_narrow(context, weight_,
                     {.x = x(),
                      .x_scales = x_scales(),
                      .x_scales_pitch = x_scales_pitch,
                      .bias = bias(),
                      .starts_early = starts_early},
                     y);
  }
  /// Row m alone; its scale is read two at a time, and the one behind must not matter.
  void queue_row(const CudaContext& context, int64_t m, Matrix y) const {
    std::vector<float> scales;
    for (int64_t b = 0; b < num_blocks; ++b) {
      scales.push_back(x_scale(m, b));
      scales.resize(static_cast<size_t>((b + 1) * kW4axTokenPadding), std::nanf(""));
    }
    const DeviceArray<float> device_scales(scales);
    w4ax_gemm_narrow(context, weight_,
                     {.x = x().rows(m, m + 1),
                      .x_scales = device_scales.data(),
                      .x_scales_pitch = kW4axTokenPadding,
                      .bias = bias()},
                     y);
    context.stream.synchronize();
  }

  /// Runs the plan with outputs of a type, `y_gap` elements between rows, and compares.
  void check(const CudaContext& context, const TilePlan& plan, DType dtype,
             int64_t y_gap = 16) const {
    SCOPED_TRACE(str(plan, ", ", M, " x ", N, " x ", K, ", ", dtype));
    const DeviceMatrix y(dtype, M, N, y_gap);
    queue(context, plan, y.matrix());
    expect_right(context.stream, y, dtype);
  }

 private:
  W4axWeight weight_;
};

class W4axGemm : public HopperTest {
 protected:
  int num_tiles() const { return static_cast<int>(w4ax_family().tiles.size()); }
};

TEST_F(W4axGemm, IsRightForAllTilesAndSizes) {
  for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{3, 130, 128}, Sizes{17, 264, 200},
                             Sizes{64, 128, 1024}, Sizes{130, 390, 328}, Sizes{300, 520, 517}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < num_tiles(); ++tile) {
      const TilePlan plan = plan_one_tile(w4ax_family(), product.shape(), device_, tile);
      product.check(context_, plan, DType::kF16);
      product.check(context_, plan, DType::kBf16, 3);
      product.check(context_, plan, DType::kF32);
    }
  }
}

TEST_F(W4axGemm, IsRightWhereTilesAreShared) {
  for (const Sizes& sizes : {Sizes{9, 300, 1000}, Sizes{150, 640, 2048}, Sizes{270, 300, 1536}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < num_tiles(); ++tile) {
      for (const int blocks : {2, 3, 7, 12, 16}) {
        const TilePlan plan =
            plan_shared_tile(w4ax_family(), product.shape(), device_, tile, blocks);
        product.check(context_, plan, DType::kF16);
        product.check(context_, plan, DType::kF32);
      }
    }
  }
}

/// Of a device so small that tiles are dealt in rounds, and what is left shared in every way.
TEST_F(W4axGemm, IsRightForAllPlans) {
  CudaDeviceInfo device = device_;
  device.num_sms = 5;
  for (const Sizes& sizes : {Sizes{9, 1500, 1500}, Sizes{280, 530, 1152}, Sizes{150, 140, 2048}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < num_tiles(); ++tile) {
      for (const TilePlan& plan : plans_of_tile(w4ax_family(), product.shape(), device, tile)) {
        product.check(context_, plan, DType::kF16);
        product.check(context_, plan, DType::kF32);
      }
    }
  }
}

/// The largest sums that a block can have: 128 * 128 * 8.
TEST_F(W4axGemm, SumsOfBlocksAreExact) {
  const Product product(context_, {20, 140, 384}, {.num_s8_inputs = 384, .is_extreme = true});
  for (int tile = 0; tile < num_tiles(); ++tile) {
    const DeviceMatrix y(DType::kF32, product.M, product.N);
    product.queue(context_, plan_one_tile(w4ax_family(), product.shape(), device_, tile),
                  y.matrix());
    for (const float value : y.get(stream_)) ASSERT_EQ(value, 384.0f * 128 * 8);
  }
}

/// A row whose block has a scale of NaN gives NaN, others do not.
TEST_F(W4axGemm, RowsThatAreNotFiniteAreNan) {
  Product product(context_, {40, 130, 512});
  product.set_x_scale(17, 2, std::numeric_limits<float>::quiet_NaN());
  product.upload_x_scales();
  for (int tile = 0; tile < num_tiles(); ++tile) {
    const DeviceMatrix y(DType::kF16, product.M, product.N);
    product.queue(context_, plan_one_tile(w4ax_family(), product.shape(), device_, tile),
                  y.matrix());
    product.expect_nan_in_row(stream_, y, 17);
  }
}

/// Fewer blocks of inputs than warps, as many, more; one row of 16 outputs an SM and
/// several, all at a time and some.
TEST_F(W4axGemm, IsRightForFewTokens) {
  for (const Sizes& sizes :
       {Sizes{1, 1, 1}, Sizes{3, 130, 200}, Sizes{8, 264, 4096}, Sizes{2, 2200, 4300},
        Sizes{5, 4250, 1030}, Sizes{8, 30000, 256}, Sizes{1, 30000, 257}, Sizes{7, 7000, 2200}}) {
    const Product product(context_, sizes);
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
      SCOPED_TRACE(str(product.M, " x ", product.N, " x ", product.K, ", ", dtype));
      const DeviceMatrix y(dtype, product.M, product.N, 3);
      product.queue_narrow(context_, y.matrix());
      product.expect_right(stream_, y, dtype);
    }
  }
}

/// Launches that may begin early, each of what the one before has written.
TEST_F(W4axGemm, FewTokensHaveTheSameBitsInGraphsAndInAllBatches) {
  const Product product(context_, {8, 500, 4096});
  const DeviceMatrix first(DType::kF32, product.M, product.N);
  const DeviceMatrix second(DType::kF32, product.M, product.N);
  const CudaGraph graph = CudaGraph::capture(stream_, [&] {
    for (int i = 0; i < 10; ++i) {
      product.queue_narrow(context_, first.matrix(), i > 0);
      product.queue_narrow(context_, second.matrix(), true);
    }
  });
  for (int i = 0; i < 3; ++i) graph.launch(stream_);
  product.expect_right(stream_, first, DType::kF32);
  const std::vector<float> bits = first.get(stream_);
  EXPECT_EQ(bits, second.get(stream_));
  const DeviceMatrix row(DType::kF32, 1, product.N);
  for (int64_t m = 0; m < product.M; ++m) {
    product.queue_row(context_, m, row.matrix());
    const std::vector<float> got = row.get(stream_);
    for (int64_t n = 0; n < product.N; ++n) {
      ASSERT_EQ(got[static_cast<size_t>(n)], bits[static_cast<size_t>(m * product.N + n)]) << n;
    }
  }
}

/// Blocks of a cluster that each have some of a tile's inputs.
TEST_F(W4axGemm, IsRightWhereInputsAreSplit) {
  for (const Sizes& sizes : {Sizes{1, 130, 512}, Sizes{9, 300, 1000}, Sizes{70, 200, 700},
                             Sizes{250, 140, 1024}, Sizes{270, 300, 1536}}) {
    const Product product(context_, sizes);
    for (int tile = 0; tile < num_tiles(); ++tile) {
      for (int split = 2; split <= kTileSplitMax; ++split) {
        const TilePlan plan = plan_split_tile(w4ax_family(), product.shape(), device_, tile, split);
        product.check(context_, plan, DType::kF16);
        product.check(context_, plan, DType::kBf16, 3);
        product.check(context_, plan, DType::kF32);
      }
    }
  }
}

TEST_F(W4axGemm, RunsInGraphsAndStartsEarly) {
  const Product product(context_, {40, 384, 4096});
  const TilePlan shared = plan_shared_tile(w4ax_family(), product.shape(), device_, 1, 30);
  const TilePlan whole = plan_one_tile(w4ax_family(), product.shape(), device_, 2);
  const DeviceMatrix first(DType::kF16, product.M, product.N);
  const DeviceMatrix second(DType::kF16, product.M, product.N);
  const CudaGraph graph = CudaGraph::capture(stream_, [&] {
    for (int i = 0; i < 10; ++i) {
      product.queue(context_, shared, first.matrix(), i > 0);
      product.queue(context_, whole, second.matrix(), true);
    }
  });
  for (int i = 0; i < 3; ++i) graph.launch(stream_);
  product.expect_right(stream_, first, DType::kF16);
  product.expect_right(stream_, second, DType::kF16);
}

}  // namespace
}  // namespace halley::cuda
