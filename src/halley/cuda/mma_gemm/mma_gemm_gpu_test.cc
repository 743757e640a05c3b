// Products by mma.sync of all kinds, tiles and parts of K, against f64 on the host, and bit for bit
// where sums are integers.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/mixed_gemm/mixed_test_weight.h"
#include "halley/cuda/mma_gemm/mma_gemm.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

constexpr MixedKind kKinds[] = {MixedKind::kU4F16, MixedKind::kU4Bf16, MixedKind::kU4S8,
                                MixedKind::kU4GroupS8};
constexpr int kNumTiles = static_cast<int>(kMmaTiles.size());

/// Of f32 sums of products of 16 bits, relative to the sum of |x w|: tensor cores add groups of
/// products with a few bits less than f32.
constexpr double kSumErrorMax = 5e-5;

/// Half a step of the output's type.
double output_error_of(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBf16 ? 0x1p-8 : 0x1p-23;
}

float rounded_to(DType dtype, float value) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return dtype == DType::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

DType x_dtype_of(MixedKind kind) {
  if (is_s8(kind)) return DType::kI8;
  return kind == MixedKind::kU4F16 ? DType::kF16 : DType::kBf16;
}

/// One weight and inputs on the host and the device.
class Product {
 public:
  Product(RandomWeight& weight, int64_t M, bool has_bias = true)
      : weight_(weight),
        M_(M),
        N_(weight.source.N),
        K_(weight.source.K),
        device_weight_(pack_mixed(weight.source)),
        has_bias_(has_bias),
        x_(x_dtype_of(kind()), M, K_, round_up<int64_t>(K_, 16) - K_ + 16) {
    std::mt19937 random(static_cast<uint32_t>(M * 7 + K_));
    std::uniform_int_distribution<int> codes(-128, 127);
    for (int64_t i = 0; i < M * K_; ++i) {
      // Multiples of 1/16 below 8: exact in all types.
      x_values_.push_back(static_cast<float>(codes(random)) / (is_s8(kind()) ? 1 : 16));
    }
    std::uniform_real_distribution<float> scales(0x1p-14f, 0x1p-13f);
    for (int64_t m = 0; m < M; ++m) x_scales_.push_back(scales(random));
    for (int64_t n = 0; n < N_; ++n) bias_.push_back(static_cast<float>(codes(random)) / 32);
    device_bias_ = std::make_unique<DeviceArray<float>>(bias_);
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

  MmaShape shape() const { return mma_shape(device_weight_, M_); }

  void queue(const CudaContext& context, const MmaPlan& plan, Matrix y) const {
    MixedOperands operands = {.x = x_.matrix()};
    if (is_s8(kind())) {
      operands.x_scales = {.x_scales = device_scales_->data(), .x_sums = device_sums_->data()};
    }
    if (has_bias_) operands.bias = device_bias_->data();
    mma_gemm_planned(context, device_weight_, operands, plan, y);
  }

  /// Runs the plan into a matrix of NaN with guards, and compares.
  void check(const CudaContext& context, const MmaPlan& plan, DType dtype = DType::kF32,
             int64_t y_gap = 16) {
    SCOPED_TRACE(str(kind(), " ", N_, " x ", K_, ", groups of ", weight_.source.group_size, ", M ",
                     M_, ", ", plan, ", ", dtype, ", gap ", y_gap));
    const DeviceMatrix y(dtype, M_, N_, y_gap);
    queue(context, plan, y.matrix());
    expect_right(context, y, dtype);
  }

  void expect_right(const CudaContext& context, const DeviceMatrix& y, DType dtype) {
    const std::vector<float> got = y.get(context.stream);
    ASSERT_TRUE(y.guards_are_intact(context.stream));
    make_expected();
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t n = 0; n < N_; ++n) {
        const Expected& expected = expected_[static_cast<size_t>(m * N_ + n)];
        const float value = got[static_cast<size_t>(m * N_ + n)];
        if (is_s8(kind())) {
          ASSERT_EQ(value, rounded_to(dtype, expected.bits)) << "[" << m << ", " << n << "]";
        }
        const double error_max = (is_s8(kind()) ? 1e-6 : kSumErrorMax) * expected.magnitude +
                                 output_error_of(dtype) * std::fabs(expected.y) + 1e-7;
        ASSERT_LE(std::fabs(value - expected.y), error_max)
            << "[" << m << ", " << n << "]: expected " << expected.y << ", got " << value;
      }
    }
  }

 private:
  struct Expected {
    double y = 0, magnitude = 0;
    float bits = 0;  // of integer sums: before the type's rounding
  };

  MixedKind kind() const { return weight_.source.kind; }

  void upload() {
    x_.set(x_values_);
    sums_.clear();
    for (int64_t m = 0; m < M_; ++m) {
      float sum = 0;
      for (int64_t k = 0; k < K_; ++k) sum += x_values_[static_cast<size_t>(m * K_ + k)];
      sums_.push_back(static_cast<int32_t>(sum));
    }
    device_scales_ = std::make_unique<DeviceArray<float>>(x_scales_);
    device_sums_ = std::make_unique<DeviceArray<int32_t>>(sums_);
    expected_.clear();
  }

  void make_expected() {
    if (!expected_.empty()) return;
    std::vector<float> operands;
    for (int64_t n = 0; n < N_; ++n) {
      for (int64_t k = 0; k < K_; ++k) {
        const float factor = kind() == MixedKind::kU4S8 ? 16 : 1;  // as the tensor cores see it
        operands.push_back(weight_.operand(n, k) / factor);
      }
    }
    for (int64_t m = 0; m < M_; ++m) {
      for (int64_t n = 0; n < N_; ++n) expected_.push_back(expect(m, n, operands.data() + n * K_));
    }
  }

  Expected expect(int64_t m, int64_t n, const float* w) const {
    const float* x = x_values_.data() + m * K_;
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < K_; ++k) {
      const double product = double{x[k]} * w[k];
      sum += product;
      magnitude += std::fabs(product);
    }
    const float bias = has_bias_ ? bias_[static_cast<size_t>(n)] : 0;
    if (!is_s8(kind())) return {sum + bias, magnitude + std::fabs(bias), 0};
    // A weight is scale * (code - zero), where the codes multiplied are less 8.
    const float w_scale = weight_.scales[static_cast<size_t>(n)];
    const float x_scale = x_scales_[static_cast<size_t>(m)];
    const bool is_plain = kind() == MixedKind::kU4S8;
    const float zero = is_plain ? weight_.zeros[static_cast<size_t>(n)] - 8 : 0;
    const auto x_sum = static_cast<float>(sums_[static_cast<size_t>(m)]);
    const float scaled = w_scale * static_cast<float>(sum);
    const float less = is_plain ? std::fma(-(w_scale * zero), x_sum, scaled) : scaled;
    const double exact = double{w_scale} * x_scale * (sum - double{zero} * x_sum) + bias;
    const double scale = std::fabs(double{w_scale} * x_scale);
    return {exact, scale * (magnitude + std::fabs(double{zero} * x_sum)) + std::fabs(bias),
            std::fma(x_scale, less, bias)};
  }

  RandomWeight& weight_;
  int64_t M_, N_, K_;
  MixedWeight device_weight_;
  bool has_bias_;
  DeviceMatrix x_;
  std::vector<float> x_values_, x_scales_, bias_;
  std::vector<int32_t> sums_;
  std::vector<Expected> expected_;  // made at the first comparison
  std::unique_ptr<DeviceArray<float>> device_scales_, device_bias_;
  std::unique_ptr<DeviceArray<int32_t>> device_sums_;
};

class MmaGemm : public GpuTest {
 protected:
  MixedDevice mixed() const { return mixed_device(context_); }
};

/// Of kU4S8 all inputs are one group.
int64_t group_size_of(MixedKind kind, int64_t K, int64_t group_size) {
  return kind == MixedKind::kU4S8 ? K : group_size;
}

TEST_F(MmaGemm, IsRightForEveryNumberOfRows) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 264, 400, group_size_of(kind, 400, 128));
    for (const int64_t M : {1, 7, 8, 9, 16, 17, 63, 64, 65, 128, 129}) {
      Product product(weight, M);
      product.check(context_, plan_mma_gemm(product.shape(), mixed()));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MmaGemm, IsRightForEverySize) {
  for (const MixedKind kind : kKinds) {
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
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 400, 1000, group_size_of(kind, 1000, 64));
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
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 130, 4096, group_size_of(kind, 4096, 32));
    for (int tile = 0; tile < kNumTiles; ++tile) {
      Product product(weight, 40);
      for (const int shared_bytes : {60000, 101376, 166912}) {
        const MixedDevice device = {.num_multiprocessors = 72, .shared_bytes_max = shared_bytes};
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
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 134, 640, group_size_of(kind, 640, 128));
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
    RandomWeight weight(kind, 200, 512, group_size_of(kind, 512, 128));
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
    std::fill(weight.codes.begin(), weight.codes.end(), static_cast<uint8_t>(code));
    std::fill(weight.zeros.begin(), weight.zeros.end(), 8.0f);
    std::fill(weight.scales.begin(), weight.scales.end(), 1.0f);
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
  // Numbers -128, 127 and 119 with the largest scale that fits: nothing is carried between bytes.
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
    for (int tile = 0; tile < kNumTiles; ++tile) {
      Product product(weight, 3, /*has_bias=*/false);
      product.set_x([](int64_t, int64_t) { return -128.0f; });
      product.set_scales_to_one();
      const DeviceMatrix y(DType::kF32, 3, 128);
      product.queue(context_, mma_plan_of(product.shape(), mixed(), tile, 1), y.matrix());
      for (const float value : y.get(stream_)) {
        ASSERT_EQ(value, static_cast<float>(512 * -128 * c.number)) << c.scale << " " << c.code;
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
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 512, 4096, group_size_of(kind, 4096, 128));
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
  one.expect_right(context_, y_one, DType::kF32);
  many.expect_right(context_, y_many, DType::kF32);
}

TEST_F(MmaGemm, IsRightForALayerOfAModel) {
  for (const MixedKind kind : kKinds) {
    RandomWeight weight(kind, 2048, 4096, group_size_of(kind, 4096, 128));
    for (const int64_t M : {1, 20}) {
      Product product(weight, M);
      product.check(context_, plan_mma_gemm(product.shape(), mixed()), DType::kF16, 0);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace halley::cuda
