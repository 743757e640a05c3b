// W4Ax products by mma.sync of all tiles and parts of K: bit for bit, and against f64 on the host.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/w4ax_pack.h"

namespace halley::cuda {
namespace {

constexpr int64_t kBlock = 128;
constexpr int kNumTiles = static_cast<int>(kMmaTiles.size());

struct Sizes {
  int64_t M, N, K;
};

float rounded_to(DType dtype, float value) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return dtype == DType::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

struct ProductOptions {
  int64_t num_s8_inputs = 0;
  /// All scales are 1 and codes the lowest: sums are the largest, and exact in f32.
  bool is_extreme = false;
  /// Codes of 4 bits in blocks that are multiplied as s8 too.
  bool has_small_codes = false;
};

class Product {
 public:
  Product(const CudaContext& context, const Sizes& sizes, const ProductOptions& options)
      : M(sizes.M),
        N(sizes.N),
        K(sizes.K),
        weight_(context, N, K),
        options_(options),
        x_(DType::kI8, M, K, round_up<int64_t>(K, 16) - K + 16),
        pitch_(round_up<int64_t>(M, kW4axTokenPadding)) {
    std::mt19937 random(static_cast<uint32_t>(M * 7 + K + N));
    std::uniform_int_distribution<int> nibbles(0, 15), s8(-128, 127), s4(-8, 7);
    std::uniform_real_distribution<float> scales(0.5f, 1.5f);
    const bool is_extreme = options.is_extreme;
    for (int64_t i = 0; i < N * K; ++i) {
      codes_.push_back(static_cast<uint8_t>(is_extreme ? 0 : nibbles(random)));
    }
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t k = 0; k < K; ++k) {
        const bool is_s8 = k / kBlock * kBlock < options.num_s8_inputs;
        const int code = is_s8 && !options.has_small_codes ? s8(random) : s4(random);
        x_values_.push_back(static_cast<float>(!is_extreme ? code : is_s8 ? -128 : -8));
      }
    }
    x_.set(x_values_);
    for (int64_t i = 0; i < N * weight_.num_blocks(); ++i) {
      w_scales_.push_back(is_extreme ? 1.0f : f16_to_f32(f32_to_f16(scales(random) / 64)));
    }
    // NaN behind M: it must not matter.
    x_scales_.resize(static_cast<size_t>(weight_.num_blocks() * pitch_), std::nanf(""));
    for (int64_t b = 0; b < weight_.num_blocks(); ++b) {
      for (int64_t m = 0; m < M; ++m) x_scale(m, b) = is_extreme ? 1.0f : scales(random) / 32;
    }
    for (int64_t n = 0; n < N; ++n) {
      bias_.push_back(is_extreme ? 0.0f : static_cast<float>(s8(random)) / 32);
    }
    device_bias_ = std::make_unique<DeviceArray<float>>(bias_);
    put_weight(context);
    put_x_scales();
  }

  float& x_scale(int64_t m, int64_t b) { return x_scales_[static_cast<size_t>(b * pitch_ + m)]; }
  void put_x_scales() { device_x_scales_ = std::make_unique<DeviceArray<float>>(x_scales_); }

  MmaShape shape() const { return mma_shape(weight_, M); }

  void queue(const CudaContext& context, const MmaPlan& plan, Matrix y) const {
    mma_w4ax_gemm_planned(context, weight_,
                          {.operands = {.x = x_.matrix(),
                                        .x_scales = device_x_scales_->data(),
                                        .x_scales_pitch = pitch_,
                                        .bias = device_bias_->data()},
                           .num_s8_inputs = options_.num_s8_inputs},
                          plan, y);
  }

  void check(const CudaContext& context, const MmaPlan& plan, DType dtype,
             int64_t y_gap = 16) const {
    SCOPED_TRACE(
        str(plan, ", ", M, " x ", N, " x ", K, ", s8 below ", options_.num_s8_inputs, ", ", dtype));
    const DeviceMatrix y(dtype, M, N, y_gap);
    queue(context, plan, y.matrix());
    const std::vector<float> got = y.get(context.stream);
    ASSERT_TRUE(y.guards_are_intact(context.stream));
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        const Expected expected = expect(m, n, plan.num_splits);
        const float value = got[static_cast<size_t>(m * N + n)];
        ASSERT_EQ(value, rounded_to(dtype, expected.bits)) << "[" << m << ", " << n << "]";
        ASSERT_LE(std::fabs(expected.bits - expected.y), 1e-6 * expected.magnitude);
      }
    }
  }

  const int64_t M, N, K;

 private:
  struct Expected {
    double y = 0, magnitude = 0;
    float bits = 0;  // as the header says that it is computed
  };

  void put_weight(const CudaContext& context) {
    const std::vector<uint8_t> chunks = pack_w4ax(codes_, N, K);
    std::vector<float> scales(weight_.scales.num_bytes() / sizeof(float));
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t b = 0; b < weight_.num_blocks(); ++b) {
        scales[static_cast<size_t>(b * weight_.scales_pitch() + n)] = w_scale(n, b);
      }
    }
    context.stream.synchronize();
    ASSERT_EQ(chunks.size(), weight_.codes.num_bytes());
    copy_to_device(weight_.codes.data(), chunks.data(), chunks.size());
    copy_to_device(weight_.scales.data(), scales.data(), scales.size() * sizeof(float));
  }

  float w_scale(int64_t n, int64_t b) const {
    return w_scales_[static_cast<size_t>(n * weight_.num_blocks() + b)];
  }

  Expected expect(int64_t m, int64_t n, int num_splits) const {
    const float bias = bias_[static_cast<size_t>(n)];
    Expected expected = {bias, std::fabs(bias), 0};
    const int64_t blocks = weight_.num_blocks();
    for (int split = 0; split < num_splits; ++split) {
      float total = 0;
      for (int64_t b = split * blocks / num_splits; b < (split + 1) * blocks / num_splits; ++b) {
        int64_t sum = 0;
        for (int64_t k = b * kBlock; k < std::min(K, (b + 1) * kBlock); ++k) {
          sum += static_cast<int64_t>(x_values_[static_cast<size_t>(m * K + k)]) *
                 (int64_t{codes_[static_cast<size_t>(n * K + k)]} - 8);
        }
        const float scale = x_scales_[static_cast<size_t>(b * pitch_ + m)];
        total = std::fma(w_scale(n, b) * static_cast<float>(sum), scale, total);
        const double exact = double{scale} * w_scale(n, b) * static_cast<double>(sum);
        expected.y += exact;
        expected.magnitude += std::fabs(exact);
      }
      expected.bits += total;
    }
    expected.bits += bias;
    return expected;
  }

  W4axWeight weight_;
  ProductOptions options_;
  DeviceMatrix x_;
  int64_t pitch_;
  std::vector<uint8_t> codes_;
  std::vector<float> x_values_, w_scales_, x_scales_, bias_;
  std::unique_ptr<DeviceArray<float>> device_bias_, device_x_scales_;
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
  product.x_scale(17, 2) = std::numeric_limits<float>::quiet_NaN();
  product.put_x_scales();
  for (int tile = 0; tile < kNumTiles; ++tile) {
    const DeviceMatrix y(DType::kF16, product.M, product.N);
    product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 2), y.matrix());
    const std::vector<float> got = y.get(stream_);
    for (int64_t m = 0; m < product.M; ++m) {
      for (int64_t n = 0; n < product.N; ++n) {
        ASSERT_EQ(std::isnan(got[static_cast<size_t>(m * product.N + n)]), m == 17) << m;
      }
    }
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
