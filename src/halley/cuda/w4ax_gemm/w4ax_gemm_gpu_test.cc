// W4Ax products of all tiles and schedules against f64 on the host.
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {
namespace {

constexpr int64_t kBlock = 128;

struct Sizes {
  int64_t M, N, K;
};

/// Half a step of the output's type.
double output_error_of(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBf16 ? 0x1p-8 : 0x1p-23;
}

struct ProductOptions {
  /// All scales are 1 and codes extreme: sums are the largest, and exact in f32.
  bool is_extreme = false;
};

class Product {
 public:
  Product(const CudaContext& context, const Sizes& sizes, const ProductOptions& options = {})
      : M(sizes.M),
        N(sizes.N),
        K(sizes.K),
        weight_(context, N, K),
        x_(DType::kI8, M, K, round_up<int64_t>(K, 16) - K + 16),
        pitch_(round_up<int64_t>(M, kW4axTokenPadding)) {
    std::mt19937 random(static_cast<uint32_t>(M * 7 + K + N));
    std::uniform_int_distribution<int> nibbles(0, 15), s8(-128, 127), s4(-8, 7);
    std::uniform_real_distribution<float> scales(0.5f, 1.5f);
    const int64_t blocks = weight_.num_blocks();
    for (int64_t i = 0; i < N * K; ++i) {
      codes_.push_back(static_cast<uint8_t>(options.is_extreme ? 0 : nibbles(random)));
    }
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t k = 0; k < K; ++k) {
        // A fifth of the blocks has 8 bits.
        const int code = k / kBlock <= blocks / 5 ? s8(random) : s4(random);
        x_values_.push_back(static_cast<float>(options.is_extreme ? -128 : code));
      }
    }
    x_.set(x_values_);
    const auto one_or = [&](float scale) { return options.is_extreme ? 1.0f : scale; };
    for (int64_t i = 0; i < N * blocks; ++i) {
      w_scales_.push_back(f16_to_f32(f32_to_f16(one_or(scales(random) / 64))));
    }
    // NaN behind M: it must not matter.
    x_scales_.resize(static_cast<size_t>(blocks * pitch_), std::nanf(""));
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t m = 0; m < M; ++m) x_scale(m, b) = one_or(scales(random) / 32);
    }
    for (int64_t n = 0; n < N; ++n) {
      bias_.push_back(options.is_extreme ? 0 : static_cast<float>(s8(random)) / 32);
    }
    device_bias_ = std::make_unique<DeviceArray<float>>(bias_);
    put_weight(context);
    put_x_scales();
  }

  float& x_scale(int64_t m, int64_t b) { return x_scales_[static_cast<size_t>(b * pitch_ + m)]; }
  void put_x_scales() { device_x_scales_ = std::make_unique<DeviceArray<float>>(x_scales_); }

  ProductShape shape() const { return {.M = M, .N = N, .K = K}; }

  void queue(const CudaContext& context, const TilePlan& plan, Matrix y,
             bool starts_early = false) const {
    const W4axOperands operands = {.x = x_.matrix(),
                                   .x_scales = device_x_scales_->data(),
                                   .x_scales_pitch = pitch_,
                                   .bias = device_bias_->data(),
                                   .starts_early = starts_early};
    w4ax_gemm_planned(context, weight_, operands, plan, y);
  }

  void expect_right(const CudaContext& context, const DeviceMatrix& y, DType dtype,
                    double relative_error = 1e-6) const {
    const std::vector<float> got = y.get(context.stream);
    ASSERT_TRUE(y.guards_are_intact(context.stream));
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        const Expected expected = expect(m, n);
        const double value = got[static_cast<size_t>(m * N + n)];
        const double error_max =
            relative_error * expected.magnitude + output_error_of(dtype) * std::fabs(expected.y);
        ASSERT_LE(std::fabs(value - expected.y), error_max)
            << "[" << m << ", " << n << "]: expected " << expected.y << ", got " << value;
      }
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

  /// A code less 8; 0 where the weight has none.
  uint8_t nibble(int64_t n, int64_t k) const {
    if (n >= N || k >= K) return 0;
    return (codes_[static_cast<size_t>(n * K + k)] ^ 8u) & 15u;
  }

  std::vector<uint8_t> packed() const {
    std::vector<uint8_t> chunks;
    for (int64_t n = 0; n < N; n += kTileOutputs) {
      for (int64_t k = 0; k < K; k += kW4axInputs) {
        for (int byte = 0; byte < kW4axChunkBytes; ++byte) {
          const W4axBytePlace place = w4ax_byte_place(byte);
          const uint8_t low = nibble(n + place.output, k + place.input);
          const uint8_t high = nibble(n + place.output + 8, k + place.input);
          chunks.push_back(static_cast<uint8_t>(low | high << 4));
        }
      }
    }
    return chunks;
  }

  void put_weight(const CudaContext& context) {
    const std::vector<uint8_t> chunks = packed();
    std::vector<float> scales(weight_.scales.num_bytes() / sizeof(float));
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t b = 0; b < weight_.num_blocks(); ++b) {
        scales[static_cast<size_t>(b * weight_.scales_pitch() + n)] =
            w_scales_[static_cast<size_t>(n * weight_.num_blocks() + b)];
      }
    }
    context.stream.synchronize();
    ASSERT_EQ(chunks.size(), weight_.codes.num_bytes());
    copy_to_device(weight_.codes.data(), chunks.data(), chunks.size());
    copy_to_device(weight_.scales.data(), scales.data(), scales.size() * sizeof(float));
  }

  Expected expect(int64_t m, int64_t n) const {
    Expected expected = {bias_[static_cast<size_t>(n)], std::fabs(bias_[static_cast<size_t>(n)])};
    for (int64_t b = 0; b < weight_.num_blocks(); ++b) {
      int64_t sum = 0;
      for (int64_t k = b * kBlock; k < std::min(K, (b + 1) * kBlock); ++k) {
        sum += static_cast<int64_t>(x_values_[static_cast<size_t>(m * K + k)]) *
               (int64_t{codes_[static_cast<size_t>(n * K + k)]} - 8);
      }
      const double scale = double{x_scales_[static_cast<size_t>(b * pitch_ + m)]} *
                           w_scales_[static_cast<size_t>(n * weight_.num_blocks() + b)];
      expected.y += scale * static_cast<double>(sum);
      expected.magnitude += std::fabs(scale * static_cast<double>(sum));
    }
    return expected;
  }

  W4axWeight weight_;
  DeviceMatrix x_;
  int64_t pitch_;
  std::vector<uint8_t> codes_;
  std::vector<float> x_values_, w_scales_, x_scales_, bias_;
  std::unique_ptr<DeviceArray<float>> device_bias_, device_x_scales_;
};

class W4axGemm : public GpuTest {
 protected:
  void SetUp() override {
    if (device_.compute_major != 9 || device_.compute_minor != 0) {
      GTEST_SKIP() << "needs compute capability 9.0, the GPU has " << device_.compute_major << "."
                   << device_.compute_minor;
    }
  }

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

/// The largest sums that a block can have: 128 * 128 * 8.
TEST_F(W4axGemm, SumsOfBlocksAreExact) {
  const Product product(context_, {20, 140, 384}, {.is_extreme = true});
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
  product.x_scale(17, 2) = std::numeric_limits<float>::quiet_NaN();
  product.put_x_scales();
  for (int tile = 0; tile < num_tiles(); ++tile) {
    const DeviceMatrix y(DType::kF16, product.M, product.N);
    product.queue(context_, plan_one_tile(w4ax_family(), product.shape(), device_, tile),
                  y.matrix());
    const std::vector<float> got = y.get(stream_);
    for (int64_t m = 0; m < product.M; ++m) {
      for (int64_t n = 0; n < product.N; ++n) {
        ASSERT_EQ(std::isnan(got[static_cast<size_t>(m * product.N + n)]), m == 17) << m;
      }
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
  product.expect_right(context_, first, DType::kF16);
  product.expect_right(context_, second, DType::kF16);
}

}  // namespace
}  // namespace halley::cuda
