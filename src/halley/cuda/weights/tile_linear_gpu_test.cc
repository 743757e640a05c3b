// Layers whose weights stay in two planes or in 4-bit codes for blocks of codes, against f64.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"

namespace halley::cuda {
namespace {

constexpr double kHalfStepF16 = 0x1p-11, kHalfStepBf16 = 0x1p-8;

/// Of outputs: their weights [N, K], which meet the inputs rounded as `quant` says.
struct Reference {
  std::vector<float> w;
  const QuantParams& quant;
  double error = 5e-5;  // of the magnitudes added
};

class TileLinear : public HopperTest {
 protected:
  CudaLinear load(const PackedWeight& weight, DType dtype, const char* w4_kernels = "hopper") {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    loader.use_w4_kernels(w4_kernels);
    std::vector<CudaLinear::Section> sections;
    sections.push_back(loader.load_packed("a", weight, bias_of(weight.N), 0));
    return {"a", dtype, std::move(sections), lt_};
  }

  static std::vector<float> bias_of(int64_t N) {
    std::vector<float> bias;
    for (int64_t n = 0; n < N; ++n) bias.push_back(static_cast<float>(n % 7) / 8);
    return bias;
  }

  void check(const CudaLinear& linear, const Reference& reference, int64_t M,
             Precision precision = Precision::kFull) {
    const int64_t N = linear.out_features(), K = linear.in_features();
    SCOPED_TRACE(str(linear.describe(), ", M ", M, ", ", precision));
    DeviceMatrix x(linear.dtype(), M, K), y(linear.dtype(), M, N);
    x.fill_normal(21);
    const size_t mark = workspace_.mark();
    linear.run(context_, x.matrix(), y.matrix(), precision);
    EXPECT_EQ(workspace_.mark(), mark);
    const std::vector<float> got = y.get(stream_), inputs = x.get(stream_), bias = bias_of(N);
    ASSERT_TRUE(y.guards_are_intact(stream_));
    std::vector<float> rounded(static_cast<size_t>(K));
    for (int64_t m = 0; m < M; ++m) {
      round_activations(
          reference.quant,
          std::span(inputs).subspan(static_cast<size_t>(m * K), static_cast<size_t>(K)),
          rounded.data());
      for (int64_t n = 0; n < N; ++n) {
        double expected = bias[static_cast<size_t>(n)], magnitude = std::fabs(expected);
        for (int64_t k = 0; k < K; ++k) {
          const double product =
              double{rounded[static_cast<size_t>(k)]} * reference.w[static_cast<size_t>(n * K + k)];
          expected += product;
          magnitude += std::fabs(product);
        }
        const double step = linear.dtype() == DType::kF16 ? kHalfStepF16 : kHalfStepBf16;
        ASSERT_LE(std::fabs(got[static_cast<size_t>(m * N + n)] - expected),
                  reference.error * magnitude + 2 * step * std::fabs(expected) + 1e-6)
            << "[" << m << ", " << n << "]: expected " << expected;
      }
    }
  }

  CublasLtGemm lt_{context_, {}};
};

PackedWeight nested_weight(int64_t N, int64_t K) {
  PackedWeight weight;
  weight.layout = PackedLayout::kNestedF16Quad;
  weight.N = N;
  weight.K = K;
  allocate_quantized(&weight);
  auto* bytes = reinterpret_cast<uint8_t*>(weight.data.data());
  const size_t panel_bytes = packed_bytes(weight.layout, kPanelRows, K), plane = panel_bytes / 2;
  std::mt19937 random(6);
  for (size_t i = 0; i < weight.data.num_bytes() / 2; ++i) {
    const auto bits = static_cast<uint16_t>((random() % 0x3F01) | (random() & 0x8000u));
    const size_t upper = i / plane * panel_bytes + i % plane;
    bytes[upper] = split_f16(bits).upper;
    bytes[upper + plane] = split_f16(bits).lower;
  }
  return weight;
}

TEST_F(TileLinear, BothPrecisionsOfTwoPlanesAreRight) {
  for (const auto& [N, K] : std::vector<std::pair<int64_t, int64_t>>{{37, 128}, {320, 1024}}) {
    const PackedWeight weight = nested_weight(N, K);
    const CudaLinear linear = load(weight, DType::kF16);
    ASSERT_STREQ(linear.sections()[0].weight->kernel_name(), kNestedKernelName);
    EXPECT_EQ(linear.code_form(), nullptr);
    Reference full = {std::vector<float>(static_cast<size_t>(N * K)), weight.quant};
    for (int64_t n = 0; n < N; ++n) unpack_row(weight, n, full.w.data() + n * K);
    QuantParams low_quant;
    low_quant.activation = ActivationQuant::kE4m3Token;
    Reference low = {full.w, low_quant, 2e-3};  // FP8 products keep 14 bits
    for (float& w : low.w) {
      const NestedFloat nested = split_f16(f32_to_f16(w));
      w = e4m3_to_f32(nested.upper) * kNestedUpperScale;
    }
    for (const int64_t M : {1, 17, 150}) {
      check(linear, full, M);
      check(linear, low, M, Precision::kLow);
    }
  }
}

TEST_F(TileLinear, BlocksOfFourAndEightBitsAreRight) {
  for (const bool has_order : {false, true}) {
    const int64_t N = 200, K = 1000;
    PackedWeight weight = empty_weight(PackedLayout::kU4Quad, N, K, 128);
    std::mt19937 random(8);
    for (size_t i = 0; i < weight.data.num_bytes(); ++i) {
      weight.data.data()[i] = static_cast<std::byte>(random());
    }
    auto groups = weight.quant.groups.as<float>();
    for (size_t i = 0; i < groups.size(); ++i) {
      const float scale = f16_to_f32(f32_to_f16(0.01f + static_cast<float>(random() % 64) / 4096));
      groups[i] = i / 32 % 2 == 1 ? 8.0f : scale;
    }
    weight.quant.activation = ActivationQuant::kS4S8Block128;
    weight.quant.num_s8_inputs = 256;
    weight.quant.s4_clip = 0.9f;
    if (has_order) {
      weight.quant.input_perm.resize(static_cast<size_t>(K));
      std::iota(weight.quant.input_perm.begin(), weight.quant.input_perm.end(), 0);
      std::shuffle(weight.quant.input_perm.begin(), weight.quant.input_perm.end(), random);
    }
    Reference reference = {std::vector<float>(static_cast<size_t>(N * K)), weight.quant, 1e-6};
    for (int64_t n = 0; n < N; ++n) unpack_row(weight, n, reference.w.data() + n * K);
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      for (const char* kernels : {"hopper", "mma"}) {
        const CudaLinear linear = load(weight, dtype, kernels);
        ASSERT_NE(linear.sections()[0].weight->w4ax(), nullptr);
        for (const int64_t M : {1, 17, 150}) check(linear, reference, M);
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
