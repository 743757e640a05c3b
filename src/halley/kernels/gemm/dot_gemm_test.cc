// The integer dot-product kernels: every row of the table that is one, on every SIMD target.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/dot_kernel.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/kernels/gemm/testing/gemm_reference.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct DotCase {
  const char* kernel = "";
  ZeroKind zero_kind = ZeroKind::kPoint;
  int64_t M = 0, N = 0, K = 0;
  int64_t group_size = 0;
  bool has_bias = false;
  bool has_input_perm = false;
  bool is_static = false;
  int64_t num_s8_inputs = 0;  // of blocks of s4 and s8 activations
};

std::ostream& operator<<(std::ostream& out, const DotCase& shape) {
  return out << shape.kernel << (shape.zero_kind == ZeroKind::kPoint ? " point" : " offset")
             << " M=" << shape.M << " N=" << shape.N << " K=" << shape.K
             << " G=" << shape.group_size << (shape.has_bias ? " bias" : "")
             << (shape.has_input_perm ? " order" : "") << (shape.is_static ? " static" : "")
             << " s8=" << shape.num_s8_inputs;
}

const GemmKernel& kernel_of(const std::string& name) {
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (kernel.name == name) return kernel;
  }
  ADD_FAILURE() << "no kernel " << name;
  return cpu_gemm_kernels().front();
}

constexpr std::array<const char*, 7> kDotKernels = {
    "gemm_w4a21_hwy", "gemm_w4a16_hwy", "gemm_w4a8_hwy", "gemm_w4ax_hwy",
    "gemm_w8a8_hwy",  "gemm_w2a21_hwy", "gemm_w3a21_hwy"};

bool is_s8(const std::string& kernel) { return kernel.find("a8_") != std::string::npos; }
bool has_blocks(const std::string& kernel) { return kernel.find("ax_") != std::string::npos; }

// Packs the quantized W [N, K], row-major.
void set_quantized(PackedWeight* weight, const std::vector<uint8_t>& values) {
  const int64_t num_units = (weight->K + kQuadUnitInputs - 1) / kQuadUnitInputs;
  const auto panel_bytes = packed_bytes(weight->layout, kPanelRows, weight->K);
  std::vector<uint8_t> quads(static_cast<size_t>(num_units * kQuadUnitInputs * kPanelRows));
  for (int64_t panel = 0; panel * kPanelRows < weight->N; ++panel) {
    std::fill(quads.begin(), quads.end(), uint8_t{0});
    const int64_t n_end = std::min(weight->N, (panel + 1) * kPanelRows);
    for (int64_t n = panel * kPanelRows; n < n_end; ++n) {
      for (int64_t k = 0; k < weight->K; ++k) {
        quads[static_cast<size_t>(k / 4 * kQuadValues + n % kPanelRows * 4 + k % 4)] =
            values[static_cast<size_t>(n * weight->K + k)];
      }
    }
    pack_quads(weight->layout, quads.data(), num_units,
               weight->data.data() + static_cast<size_t>(panel) * panel_bytes);
  }
}

// Scales and zeros of each feature and group.
template <typename Scale, typename Zero>
void set_groups(PackedWeight* weight, const Scale& scale, const Zero& zero) {
  auto groups = weight->quant.groups.as<float>();
  std::fill(groups.begin(), groups.end(), 0.0f);
  for (int64_t n = 0; n < weight->N; ++n) {
    for (int64_t g = 0; g < weight->num_groups(); ++g) {
      auto* group = const_cast<float*>(weight->group(n / kPanelRows, g));
      group[n % kPanelRows] = scale();
      group[kPanelRows + n % kPanelRows] = zero(group[n % kPanelRows]);
    }
  }
}

struct DotData {
  DotCase shape;
  PackedWeight weight;
  std::vector<float> bias;
  std::vector<float> x;  // [M, K]
};

PackedWeight empty_weight(const DotCase& shape) {
  PackedWeight weight;
  weight.layout = kernel_of(shape.kernel).w_layout;
  weight.N = shape.N;
  weight.K = shape.K;
  weight.quant.group_size = shape.group_size;
  weight.quant.zero_kind = shape.zero_kind;
  if (is_s8(shape.kernel)) {
    weight.quant.activation =
        shape.is_static ? ActivationQuant::kS8Static : ActivationQuant::kS8Token;
    weight.quant.activation_scale = shape.is_static ? 0.015625f : 0.0f;
  }
  if (has_blocks(shape.kernel)) {
    weight.quant.activation = ActivationQuant::kS4S8Block128;
    weight.quant.num_s8_inputs = shape.num_s8_inputs;
    weight.quant.s4_clip = shape.K % 2 == 0 ? 1.0f : 0.8f;
  }
  allocate_quantized(&weight);
  return weight;
}

DotData make_data(const DotCase& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> scale(0.005f, 0.02f);
  DotData data;
  data.shape = shape;
  data.weight = empty_weight(shape);
  const int code_max = (1 << code_bits(data.weight.layout)) - 1;
  std::uniform_int_distribution<int> code(0, code_max);
  std::vector<uint8_t> values(static_cast<size_t>(shape.N * shape.K));
  for (uint8_t& value : values) value = static_cast<uint8_t>(code(random));
  set_quantized(&data.weight, values);
  set_groups(
      &data.weight, [&] { return scale(random); },
      [&](float of_group) {
        const float zero = static_cast<float>(code(random));
        return shape.zero_kind == ZeroKind::kPoint ? zero : of_group * (zero + 0.3f);
      });
  if (shape.has_input_perm) {
    data.weight.quant.input_perm.resize(static_cast<size_t>(shape.K));
    std::iota(data.weight.quant.input_perm.begin(), data.weight.quant.input_perm.end(), 0);
    std::shuffle(data.weight.quant.input_perm.begin(), data.weight.quant.input_perm.end(), random);
  }
  data.x.resize(static_cast<size_t>(shape.M * shape.K));
  for (float& value : data.x) value = normal(random);
  if (shape.has_bias) data.bias.resize(static_cast<size_t>(shape.N));
  for (float& value : data.bias) value = normal(random);
  return data;
}

// y [M, N] of rows [first, first + count) of x, computed as a batch of their own.
std::vector<float> run_rows(const DotData& data, int64_t first, int64_t count, int num_threads) {
  const auto& shape = data.shape;
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  GuardedMatrix x(count, shape.K, 3);
  GuardedMatrix y(count, shape.N);
  for (int64_t m = 0; m < count; ++m) {
    std::copy_n(data.x.data() + (first + m) * shape.K, shape.K, x.row(m));
  }
  kernel_of(shape.kernel)
      .launch(context, data.weight, data.bias.empty() ? nullptr : data.bias.data(), x.matrix(),
              y.matrix());
  EXPECT_TRUE(y.guards_are_intact()) << shape;
  std::vector<float> dense;
  for (int64_t m = 0; m < count; ++m) dense.insert(dense.end(), y.row(m), y.row(m) + shape.N);
  return dense;
}

std::vector<float> run_all(const DotData& data, int num_threads = 2) {
  return run_rows(data, 0, data.shape.M, num_threads);
}

struct Expected {
  std::vector<float> y;
  // Errors are relative to this: the sum of |x w| + |x zero| scale, + |bias|.
  std::vector<double> size;
};

Expected expect(const DotData& data) {
  const auto& [kernel, zero_kind, M, N, K, group_size, has_bias, has_order, is_static, num_s8] =
      data.shape;
  Expected expected;
  expected.y.resize(static_cast<size_t>(M * N));
  gemm_reference(data.weight, has_bias ? data.bias.data() : nullptr,
                 f32_matrix(data.x.data(), M, K), f32_matrix(expected.y.data(), M, N));
  expected.size.resize(expected.y.size());
  std::vector<float> w(static_cast<size_t>(K));
  std::vector<double> of_input(static_cast<size_t>(K));
  for (int64_t n = 0; n < N; ++n) {
    unpack_row(data.weight, n, w.data());
    for (int64_t k = 0; k < K; ++k) {
      const float* group = data.weight.group(n / kPanelRows, k / group_size) + n % kPanelRows;
      const double zero =
          double{group[kPanelRows]} * (zero_kind == ZeroKind::kPoint ? double{group[0]} : 1.0);
      const auto i =
          static_cast<size_t>(has_order ? data.weight.quant.input_perm[static_cast<size_t>(k)] : k);
      of_input[i] = std::fabs(double{w[i]}) + std::fabs(zero);
    }
    for (int64_t m = 0; m < M; ++m) {
      const float* x = data.x.data() + m * K;
      double sum = has_bias ? std::fabs(double{data.bias[static_cast<size_t>(n)]}) : 0.0;
      for (int64_t k = 0; k < K; ++k) {
        sum += std::fabs(double{x[k]}) * of_input[static_cast<size_t>(k)];
      }
      expected.size[static_cast<size_t>(m * N + n)] = sum;
    }
  }
  return expected;
}

// The largest error, in units of the kernel's error bound.
double worst_error(const std::vector<float>& y, const Expected& expected, double error_max) {
  double worst = y.size() == expected.y.size() ? 0.0 : kInfinity;
  for (size_t i = 0; i < y.size() && i < expected.y.size(); ++i) {
    const double error = std::fabs(double{y[i]} - double{expected.y[i]});
    if (error == 0) continue;
    worst = std::max(worst, error / (error_max * expected.size[i]));
    if (std::isnan(error)) return kInfinity;
  }
  return worst;
}

void expect_matches(const DotData& data) {
  const Expected expected = expect(data);
  const double error_max = kernel_of(data.shape.kernel).error_max;
  for_each_simd_target([&](const char* target) {
    EXPECT_LE(worst_error(run_all(data), expected, error_max), 1.0) << data.shape << target;
  });
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

class DotGemm : public testing::TestWithParam<const char*> {
 protected:
  DotCase shape(ZeroKind zero_kind, int64_t M, int64_t N, int64_t K, int64_t group_size) const {
    return {GetParam(), zero_kind, M, N, K, group_size < 0 ? K : group_size};
  }
  float code_max() const {
    return static_cast<float>((1 << code_bits(kernel_of(GetParam()).w_layout)) - 1);
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, DotGemm, testing::ValuesIn(kDotKernels),
                         [](const auto& kernel) { return std::string(kernel.param); });

constexpr std::array<ZeroKind, 2> kZeroKinds = {ZeroKind::kPoint, ZeroKind::kOffset};

TEST_P(DotGemm, MatchesTheReferenceAlongK) {
  uint32_t seed = 1;
  for (const ZeroKind zero_kind : kZeroKinds) {
    for (const int64_t K : {8, 9, 31, 32, 33, 127, 128, 129, 300, 1037}) {
      for (const int64_t G : {-1, 8, 16, 24, 32, 64, 96, 128, 256}) {
        // Long ones in few groupings: the portable target is slow.
        if (K > 300 && G != -1 && G != 24 && G != 128) continue;
        DotCase drawn = shape(zero_kind, 1 + seed % 3, 33, K, G);
        drawn.has_bias = seed % 2 == 0;
        drawn.has_input_perm = seed % 3 == 0;
        drawn.is_static = seed % 5 == 0;
        drawn.num_s8_inputs = std::min<int64_t>(K, 128 * (seed % 4));
        expect_matches(make_data(drawn, seed++));
      }
    }
  }
}

TEST_P(DotGemm, MatchesTheReferenceAlongN) {
  for (const int64_t N : {0, 1, 31, 33, 100, 4097}) {
    DotCase drawn = shape(ZeroKind::kPoint, 2, N, 9, -1);
    drawn.has_bias = N % 2 == 1;
    expect_matches(make_data(drawn, 3));
  }
}

TEST_P(DotGemm, MatchesTheReferenceAlongM) {
  for (const ZeroKind zero_kind : kZeroKinds) {
    for (const int64_t M : {0, 1, 2, 3, 4, 5, 7, 8, 12, 13, 17, 33, 130}) {
      expect_matches(make_data(shape(zero_kind, M, 40, 133, M % 2 == 0 ? 128 : 32), 4));
    }
  }
}

TEST_P(DotGemm, OfNothingIsTheBias) {
  DotCase drawn = shape(ZeroKind::kPoint, 3, 40, 0, 32);
  drawn.has_bias = true;
  const DotData data = make_data(drawn, 5);
  for_each_simd_target([&](const char* target) {
    const std::vector<float> y = run_all(data);
    for (int64_t m = 0; m < 3; ++m) {
      EXPECT_TRUE(same_bits({y.data() + m * 40, 40}, data.bias)) << target;
    }
  });
}

TEST_P(DotGemm, RowsDoNotDependOnTheBatchOrTheThreads) {
  for (const int64_t G : {24, 128}) {
    DotCase drawn = shape(ZeroKind::kPoint, 150, 70, 300, G);
    drawn.has_input_perm = G == 24;
    drawn.num_s8_inputs = 128;
    const DotData data = make_data(drawn, 6);
    for_each_simd_target([&](const char* target) {
      const std::vector<float> all = run_all(data, 1);
      EXPECT_TRUE(same_bits(run_all(data, 3), all)) << drawn << target;
      for (const int64_t M : {1, 2, 3, 5, 6, 7, 16, 17, 40}) {
        const int64_t first = 45 - M;
        const std::vector<float> rows = run_rows(data, first, M, 2);
        EXPECT_TRUE(same_bits(rows, {all.data() + first * 70, rows.size()}))
            << drawn << target << " " << M;
      }
    });
  }
}

// All weights at their largest, and x of the slices that make the largest accumulators of one sign.
TEST_P(DotGemm, DoesNotSaturate) {
  // In steps of the fixed point: all slices 63; all low slices -64.
  const float low_slices = -static_cast<float>(62 * 16384 + 64 * 129);
  const auto fixed_max = static_cast<float>(dot_gemm::kFixedMax);
  for (const float value : {fixed_max, -fixed_max, low_slices}) {
    for (const int64_t M : {1, 7, 20}) {
      DotCase drawn = shape(ZeroKind::kPoint, M, 33, 300, 128);
      drawn.is_static = true;
      drawn.num_s8_inputs = 256;
      DotData data = make_data(drawn, 7);
      set_quantized(&data.weight, std::vector<uint8_t>(33 * 300, static_cast<uint8_t>(code_max())));
      set_groups(
          &data.weight, [] { return 0.01f; }, [](float) { return 0.0f; });
      std::fill(data.x.begin(), data.x.end(), value);
      for (int64_t m = 0; m < M; ++m) data.x[static_cast<size_t>(m * 300 + m % 8)] = fixed_max;
      expect_matches(data);
    }
  }
}

TEST_P(DotGemm, KeepsItsAccuracyBesideOutliers) {
  for (const int64_t M : {1, 9}) {
    DotData data = make_data(shape(ZeroKind::kPoint, M, 33, 512, 128), 8);
    for (int64_t m = 0; m < M; ++m) data.x[static_cast<size_t>(m * 512 + 37 * (m + 1))] = 1e4f;
    // Otherwise an outlier could meet a weight and a zero of 0, and be missing where errors are
    // compared.
    set_groups(
        &data.weight, [] { return 0.01f; }, [](float) { return 1.0f; });
    expect_matches(data);
  }
}

TEST_P(DotGemm, GivesNanForRowsThatAreNotFiniteAndForThemAlone) {
  DotData data = make_data(shape(ZeroKind::kPoint, 20, 40, 300, 32), 9);
  const std::vector<float> clean = data.x;
  const auto spoil = [&](int64_t m, int64_t k, float value) {
    data.x[static_cast<size_t>(m * 300 + k)] = value;
  };
  spoil(2, 0, kNan);
  spoil(3, 299, kInfinity);
  spoil(7, 128, -kInfinity);
  for_each_simd_target([&](const char* target) {
    const std::vector<float> y = run_all(data);
    std::swap(data.x, const_cast<std::vector<float>&>(clean));
    const std::vector<float> expected = run_all(data);
    std::swap(data.x, const_cast<std::vector<float>&>(clean));
    for (int64_t m = 0; m < 20; ++m) {
      const std::span<const float> row(y.data() + m * 40, 40);
      if (m == 2 || m == 3 || m == 7) {
        EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float v) { return std::isnan(v); }))
            << target << " " << m;
      } else {
        EXPECT_TRUE(same_bits(row, {expected.data() + m * 40, 40})) << target << " " << m;
      }
    }
  });
}

TEST_P(DotGemm, TakesTinyRowsForZero) {
  DotCase drawn = shape(ZeroKind::kPoint, 2, 33, 64, 32);
  drawn.has_bias = true;
  DotData data = make_data(drawn, 10);
  std::fill_n(data.x.begin(), 64, 0.0f);
  std::fill_n(data.x.begin() + 64, 64, 0x1p-101f);
  for_each_simd_target([&](const char* target) {
    const std::vector<float> y = run_all(data);
    EXPECT_TRUE(same_bits({y.data(), 33}, data.bias)) << target;
    EXPECT_TRUE(same_bits({y.data() + 33, 33}, data.bias)) << target;
  });
}

// W is the identity: y is x as the kernel rounds it.
TEST_P(DotGemm, RoundsInputsAsItSays) {
  constexpr int64_t kSize = 160;
  for (const bool is_static : {false, true}) {
    DotCase drawn = shape(ZeroKind::kPoint, 5, kSize, kSize, 32);
    drawn.is_static = is_static;
    drawn.num_s8_inputs = 128;
    drawn.has_input_perm = has_blocks(GetParam());
    DotData data = make_data(drawn, 11);
    std::vector<uint8_t> values(kSize * kSize);
    // Weights are stored in packed order.
    const auto& order = data.weight.quant.input_perm;
    for (size_t k = 0; k < kSize; ++k) {
      values[(order.empty() ? k : static_cast<size_t>(order[k])) * kSize + k] = 1;
    }
    set_quantized(&data.weight, values);
    set_groups(
        &data.weight, [] { return 1.0f; }, [](float) { return 0.0f; });
    // Ties, at both ends of the range too.
    for (size_t i = 0; i < kSize; ++i) data.x[i] = (static_cast<float>(i) - 131.5f) / 64;
    data.x[0] = 127.0f / 64;
    std::vector<int8_t> s8(kSize);
    std::vector<float> rounded(kSize);
    for_each_simd_target([&](const char* target) {
      const std::vector<float> y = run_all(data);
      for (size_t m = 0; m < 5; ++m) {
        const std::span<const float> x(data.x.data() + m * kSize, kSize);
        float scale = 0;
        if (is_s8(GetParam())) scale = quantize_s8(data.weight.quant, x, s8.data());
        round_activations(data.weight.quant, x, rounded.data());
        for (size_t i = 0; i < kSize; ++i) {
          const float actual = y[m * kSize + i];
          if (is_s8(GetParam())) {
            EXPECT_EQ(actual, scale * static_cast<float>(s8[i])) << target << " " << x[i];
          } else if (has_blocks(GetParam())) {
            EXPECT_EQ(actual, rounded[i]) << target << " " << x[i];
          } else {
            float largest = 0;
            for (size_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) {
              largest = std::max(largest, std::fabs(x[k]));
            }
            const bool is_16_bits = GetParam() == std::string("gemm_w4a16_hwy");
            const double fixed_max = is_16_bits ? dot_gemm::kFixedMax16 : dot_gemm::kFixedMax;
            // Half a step, and what f32 does to the largest.
            EXPECT_NEAR(actual, x[i], largest * (0.5 / fixed_max + 0x1p-22)) << target;
          }
        }
      }
    });
  }
}

// Sizes of real layers, and every number of blocks of 8 bits.
TEST(DotGemmBlocks, MatchTheReferenceForAnyNumberOf8Bits) {
  uint32_t seed = 50;
  for (const int64_t K : {200, 512, 1408}) {
    for (int64_t num_s8 = 0; num_s8 < K + 128; num_s8 += 128) {
      DotCase drawn = {"gemm_w4ax_hwy", ZeroKind::kPoint, 1 + seed % 8, 33, K, 128};
      drawn.has_input_perm = seed % 2 == 0;
      drawn.num_s8_inputs = std::min(K, num_s8);
      expect_matches(make_data(drawn, seed++));
    }
  }
}

TEST(DotGemmTable, SaysWhyAProblemDoesNotFit) {
  const auto reason = [](const char* kernel, PackedLayout layout, ActivationQuant activation,
                         int64_t group_size) {
    return kernel_of(kernel).why_not(
        {layout, 64, 256, group_size, ZeroKind::kPoint, false, activation});
  };
  EXPECT_EQ(reason("gemm_w4a21_hwy", PackedLayout::kU4Quad, ActivationQuant::kNone, 32), "");
  EXPECT_EQ(reason("gemm_w4a21_hwy", PackedLayout::kU8Quad, ActivationQuant::kNone, 32),
            "reads u4_quad, the weight is u8_quad");
  EXPECT_EQ(reason("gemm_w4a21_hwy", PackedLayout::kU4Quad, ActivationQuant::kS8Token, 32),
            "is for activations of none, the weight's are s8_token");
  EXPECT_EQ(reason("gemm_w4a21_hwy", PackedLayout::kU4Quad, ActivationQuant::kNone, 12),
            "needs groups of a multiple of 8 inputs, the weight's have 12");
  EXPECT_EQ(reason("gemm_w4a21_hwy", PackedLayout::kU4Quad, ActivationQuant::kNone, 257), "");
  EXPECT_EQ(reason("gemm_w8a8_hwy", PackedLayout::kU8Quad, ActivationQuant::kS8Static, 256), "");
  EXPECT_EQ(reason("gemm_w4ax_hwy", PackedLayout::kU4Quad, ActivationQuant::kS4S8Block128, 64), "");
  EXPECT_EQ(reason("gemm_w4ax_hwy", PackedLayout::kU4Quad, ActivationQuant::kS4S8Block128, 12),
            "needs groups of a multiple of 8 inputs, the weight's have 12");
  EXPECT_EQ(reason("gemm_w4ax_hwy", PackedLayout::kU4Quad, ActivationQuant::kS8Token, 128),
            "is for activations of s4s8_block128, the weight's are s8_token");
  EXPECT_EQ(reason("gemm_w8a8_hwy", PackedLayout::kU8Quad, ActivationQuant::kE4m3Token, 256),
            "is for activations of s8_token or s8_static, the weight's are e4m3_token");
}

TEST(DotGemmTable, PrefersTheDotProduct) {
  const auto chosen = [](PackedLayout layout, ActivationQuant activation) {
    return std::string(
        find_gemm_kernel({layout, 64, 256, 128, ZeroKind::kPoint, false, activation}).name);
  };
  EXPECT_EQ(chosen(PackedLayout::kU4Quad, ActivationQuant::kNone), "gemm_w4a21_hwy");
  EXPECT_EQ(chosen(PackedLayout::kU3Quad, ActivationQuant::kNone), "gemm_w3a21_hwy");
  EXPECT_EQ(chosen(PackedLayout::kU2Quad, ActivationQuant::kNone), "gemm_w2a21_hwy");
  EXPECT_EQ(chosen(PackedLayout::kU4Quad, ActivationQuant::kS8Token), "gemm_w4a8_hwy");
  EXPECT_EQ(chosen(PackedLayout::kU4Quad, ActivationQuant::kS4S8Block128), "gemm_w4ax_hwy");
  EXPECT_EQ(chosen(PackedLayout::kU8Quad, ActivationQuant::kS8Static), "gemm_w8a8_hwy");
}

}  // namespace
}  // namespace halley
