// W4Ax products by mma.sync of all tiles and parts of K: bit for bit, and against f64 on the host.
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/testing/block_inputs.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/testing/w4ax_test_weight.h"

namespace halley::cuda {
namespace {

constexpr int kNumTiles = static_cast<int>(kMmaTiles.size());

using Sizes = BlockInputs::Sizes;

class Product : public BlockInputs {
 public:
  Product(const CudaContext& context, const Sizes& sizes, const Options& options)
      : BlockInputs(sizes, options, kW4axTokenPadding), weight_(context, N, K) {
    put_w4ax(context, codes(), w_scales(), weight_);
  }

  MmaShape shape() const { return mma_shape(weight_, M); }

  void queue(const CudaContext& context, const MmaPlan& plan, Matrix y) const {
    const W4axOperands operands = {
        .x = x(), .x_scales = x_scales(), .x_scales_pitch = x_scales_pitch, .bias = bias()};
    mma_w4ax_gemm_planned(context, weight_, {.operands = operands, .num_s8_inputs = num_s8_inputs},
                          plan, y);
  }

  void check(const CudaContext& context, const MmaPlan& plan, DType dtype,
             int64_t y_gap = 16) const {
    SCOPED_TRACE(str(plan, ", ", M, " x ", N, " x ", K, ", s8 below ", num_s8_inputs, ", ", dtype));
    const DeviceMatrix y(dtype, M, N, y_gap);
    queue(context, plan, y.matrix());
    expect_bits(context.stream, y, dtype, plan.num_splits);
  }

 private:
  W4axWeight weight_;
};

class MmaW4ax : public GpuTest {
 protected:
  MixedDevice mixed() const { return mixed_device(context_); }
};

TEST_F(MmaW4ax, IsRightForAllTilesAndSizes) {
  for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{3, 130, 128}, Sizes{17, 264, 200},
                             Sizes{64, 128, 1024}, Sizes{130, 390, 328}, Sizes{300, 200, 517}}) {
    // All of 4 bits, some of 8, all of 8.
    for (const int64_t num_s8_inputs : {int64_t{0}, int64_t{130}, sizes.K}) {
      const Product product(context_, sizes, {.num_s8_inputs = num_s8_inputs});
      for (int tile = 0; tile < kNumTiles; ++tile) {
        const MmaPlan plan = mma_plan_of(product.shape(), mixed(), tile, 1);
        product.check(context_, plan, DType::kF16);
        product.check(context_, plan, DType::kBf16, 3);
        product.check(context_, plan, DType::kF32);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MmaW4ax, IsRightInPartsOfK) {
  for (const Sizes& sizes : {Sizes{9, 300, 1000}, Sizes{150, 260, 2048}}) {
    const Product product(context_, sizes, {.num_s8_inputs = 384});
    for (int tile = 0; tile < kNumTiles; ++tile) {
      for (const int splits : {2, 3, 7}) {
        product.check(context_, mma_plan_of(product.shape(), mixed(), tile, splits), DType::kF32);
        if (HasFatalFailure()) return;
      }
    }
    product.check(context_, plan_mma_gemm(product.shape(), mixed()), DType::kF16);
  }
}

/// The largest sums that a block can have: 128 * 128 * 8, and 128 * 8 * 8 of s4.
TEST_F(MmaW4ax, SumsOfBlocksAreExact) {
  for (const bool is_s8 : {false, true}) {
    const Product product(context_, {20, 140, 384},
                          {.num_s8_inputs = is_s8 ? 384 : 0, .is_extreme = true});
    for (int tile = 0; tile < kNumTiles; ++tile) {
      const DeviceMatrix y(DType::kF32, product.M, product.N);
      product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 1), y.matrix());
      for (const float value : y.get(stream_)) ASSERT_EQ(value, 384.0f * 8 * (is_s8 ? 128 : 8));
    }
  }
}

/// A row whose block has a scale of NaN gives NaN, others do not.
TEST_F(MmaW4ax, RowsThatAreNotFiniteAreNan) {
  Product product(context_, {40, 130, 512}, {.num_s8_inputs = 128});
  product.set_x_scale(17, 2, std::numeric_limits<float>::quiet_NaN());
  product.upload_x_scales();
  for (int tile = 0; tile < kNumTiles; ++tile) {
    const DeviceMatrix y(DType::kF16, product.M, product.N);
    product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 2), y.matrix());
    product.expect_nan_in_row(stream_, y, 17);
  }
}

/// Codes of 4 bits give the same bits as s4 and as s8, every time.
TEST_F(MmaW4ax, OperandsOfFourAndEightBitsGiveTheSameBits) {
  const Sizes sizes = {33, 260, 2048};
  const Product as_s4(context_, sizes, {.num_s8_inputs = 0, .has_small_codes = true});
  const Product as_s8(context_, sizes, {.num_s8_inputs = sizes.K, .has_small_codes = true});
  std::vector<float> first;
  for (int tile = 0; tile < kNumTiles; ++tile) {
    const MmaPlan plan = mma_plan_of(as_s4.shape(), mixed(), tile, 1);
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (const Product* product : {&as_s4, &as_s8}) {
        const DeviceMatrix y(DType::kF32, sizes.M, sizes.N);
        product->queue(context_, plan, y.matrix());
        const std::vector<float> got = y.get(stream_);
        if (first.empty()) first = got;
        ASSERT_EQ(got, first) << plan << ", repeat " << repeat;
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
