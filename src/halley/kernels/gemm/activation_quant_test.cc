#include "halley/kernels/gemm/activation_quant.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/kernels/gemm/activation_step.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr ActivationQuant kRounded[] = {
    ActivationQuant::kS8Token,      ActivationQuant::kS8Static,   ActivationQuant::kE4m3Token,
    ActivationQuant::kE4m3Group128, ActivationQuant::kE4m3Static, ActivationQuant::kS4S8Block128};

QuantParams params_of(ActivationQuant activation, float scale = 0.03f) {
  QuantParams quant;
  quant.activation = activation;
  quant.activation_scale = scale;
  quant.num_s8_inputs = 128;
  quant.s4_clip = 0.75f;
  return quant;
}

QuantParams blocks_of(int64_t num_s8_inputs, float s4_clip) {
  QuantParams quant = params_of(ActivationQuant::kS4S8Block128);
  quant.num_s8_inputs = num_s8_inputs;
  quant.s4_clip = s4_clip;
  return quant;
}

std::vector<float> round_row(const QuantParams& quant, const std::vector<float>& x) {
  std::vector<float> rounded(x.size());
  round_activations(quant, x, rounded.data());
  return rounded;
}

// The nearest representable value; of two, the one whose code is even. `values` holds the
// dequantized values of 0, 1, ....
float nearest(const std::vector<float>& values, float value) {
  size_t best = 0;
  for (size_t code = 1; code < values.size(); ++code) {
    const float distance = std::fabs(values[code] - std::fabs(value));
    const float best_distance = std::fabs(values[best] - std::fabs(value));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return std::copysign(values[best], value);
}

std::vector<float> e4m3_values() {
  std::vector<float> values;
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code / 8;
    const auto mantissa = static_cast<float>(code % 8);
    values.push_back(exponent == 0 ? mantissa / 512 : std::ldexp(8 + mantissa, exponent - 10));
  }
  return values;
}

std::vector<float> s8_values() {
  std::vector<float> values;
  for (int code = 0; code <= 128; ++code) values.push_back(static_cast<float>(code));
  return values;
}

std::vector<float> random_row(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(size);
  for (float& value : x) value = normal(random) * (random() % 16 == 0 ? 30.0f : 1.0f);
  return x;
}

float largest_of(const std::vector<float>& x, size_t begin, size_t end) {
  float largest = 0;
  for (size_t k = begin; k < end; ++k) largest = std::max(largest, std::fabs(x[k]));
  return largest;
}

TEST(RoundActivations, TakesTheNearestE4m3OfARowOrAGroup) {
  const std::vector<float> values = e4m3_values();
  const std::vector<float> x = random_row(300, 1);
  const auto token = round_row(params_of(ActivationQuant::kE4m3Token), x);
  const auto grouped = round_row(params_of(ActivationQuant::kE4m3Group128), x);
  for (size_t k = 0; k < x.size(); ++k) {
    const float largest = largest_of(x, 0, 300);
    EXPECT_EQ(token[k], largest / 448 * nearest(values, x[k] * (448 / largest))) << k;
    const size_t begin = k / 128 * 128;
    const float group_largest = largest_of(x, begin, std::min<size_t>(300, begin + 128));
    EXPECT_EQ(grouped[k], group_largest / 448 * nearest(values, x[k] * (448 / group_largest))) << k;
  }
}

TEST(RoundActivations, SaturatesWithAStaticScale) {
  const std::vector<float> x = {0.5f, -1.0f, 448.0f, 470.0f, -1e30f, 1e-9f, 17.0f, 19.0f, -0.0f};
  const auto e4m3 = round_row(params_of(ActivationQuant::kE4m3Static, 1.0f), x);
  EXPECT_EQ(e4m3, (std::vector<float>{0.5f, -1, 448, 448, -448, 0, 16, 20, 0}));
  const auto s8 = round_row(params_of(ActivationQuant::kS8Static, 2.0f), x);
  EXPECT_EQ(s8, (std::vector<float>{0, 0, 254, 254, -256, 0, 16, 20, 0}));
}

TEST(RoundActivations, TakesTheNearestS8OfARow) {
  const std::vector<float> values = s8_values();
  const std::vector<float> x = random_row(200, 2);
  const float largest = largest_of(x, 0, 200);
  const QuantParams quant = params_of(ActivationQuant::kS8Token);
  const auto rounded = round_row(quant, x);
  std::vector<int8_t> quantized(x.size());
  EXPECT_EQ(quantize_s8(quant, x, quantized.data()), largest / 127);
  for (size_t k = 0; k < x.size(); ++k) {
    const float code = nearest(values, x[k] * (127 / largest));
    EXPECT_EQ(quantized[k], static_cast<int>(code)) << k;
    EXPECT_EQ(rounded[k], largest / 127 * code) << k;
  }
  EXPECT_EQ(*std::max_element(quantized.begin(), quantized.end()), 127);
}

TEST(RoundActivations, TakesTheNearestOfEachBlocksCodes) {
  const std::vector<float> values = s8_values();
  for (const size_t K : {size_t{1}, size_t{127}, size_t{200}, size_t{513}}) {
    const std::vector<float> x = random_row(K, 12);
    for (size_t num_s8 = 0; num_s8 < K + 128; num_s8 += 128) {
      for (const float clip : {1.0f, 0.7f}) {
        const auto rounded = round_row(blocks_of(static_cast<int64_t>(num_s8), clip), x);
        for (size_t k = 0; k < K; ++k) {
          const size_t begin = k / 128 * 128;
          const float largest = largest_of(x, begin, std::min(K, begin + 128));
          const bool is_s8 = begin < num_s8;
          const float range = is_s8 ? largest : clip * largest;
          const float code_max = is_s8 ? 127.0f : 7.0f;
          const float code = nearest(values, x[k] * (code_max / range));
          EXPECT_EQ(rounded[k], range / code_max * std::clamp(code, -code_max - 1, code_max)) << k;
        }
      }
    }
  }
}

TEST(RoundActivations, TakesBlocksOfPackedInputs) {
  const std::vector<float> x = random_row(300, 13);
  QuantParams quant = blocks_of(128, 0.9f);
  std::vector<float> packed;
  for (size_t k = 0; k < x.size(); ++k) {
    quant.input_perm.push_back(static_cast<int32_t>((k * 7 + 5) % x.size()));
    packed.push_back(x[(k * 7 + 5) % x.size()]);
  }
  const auto rounded = round_row(quant, x);
  const auto of_packed = round_row(blocks_of(128, 0.9f), packed);
  for (size_t k = 0; k < x.size(); ++k) {
    EXPECT_EQ(rounded[(k * 7 + 5) % x.size()], of_packed[k]) << k;
  }
}

TEST(RoundActivations, KeepsTinyAndBrokenBlocksApart) {
  for (const int64_t num_s8 : {0, 128, 256, 384, 400}) {
    std::vector<float> x = random_row(400, 14);
    const auto clean = round_row(blocks_of(num_s8, 0.5f), x);
    std::fill_n(x.begin() + 128, 128, 0x1p-101f);
    x[256] = kNan;
    const auto rounded = round_row(blocks_of(num_s8, 0.5f), x);
    for (size_t k = 0; k < x.size(); ++k) {
      if (k / 128 == 2) {
        EXPECT_TRUE(std::isnan(rounded[k])) << k;
      } else {
        EXPECT_EQ(rounded[k], k / 128 == 1 ? 0.0f : clean[k]) << k;
      }
    }
  }
  // The range, not the largest value, must have a reciprocal.
  EXPECT_EQ(round_row(blocks_of(0, 0x1p-3f), {0x1p-98f}), std::vector<float>{0.0f});
  EXPECT_NE(round_row(blocks_of(128, 0x1p-3f), {0x1p-98f}), std::vector<float>{0.0f});
}

TEST(RoundActivations, GivesNanForClipsThatAreNoRatio) {
  for (const float clip : {0.0f, -1.0f, 1.5f, kNan, kInfinity}) {
    EXPECT_TRUE(std::isnan(round_row(blocks_of(0, clip), {1.0f})[0])) << clip;
    EXPECT_EQ(round_row(blocks_of(128, clip), {1.0f})[0], 1.0f / 127 * 127) << clip;
  }
}

TEST(RoundActivations, BreaksTiesToEven) {
  const std::vector<float> x = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -127.5f};
  std::vector<int8_t> quantized(x.size());
  quantize_s8(params_of(ActivationQuant::kS8Static, 1.0f), x, quantized.data());
  EXPECT_EQ(quantized, (std::vector<int8_t>{0, 2, 2, 0, -2, -2, 126, -128}));
}

TEST(RoundActivations, TurnsTinyRowsIntoZerosAndBrokenOnesIntoNan) {
  for (const ActivationQuant activation : kRounded) {
    const QuantParams quant = params_of(activation);
    for (const float value : round_row(quant, {0x1p-101f, -0x1p-149f, 0.0f})) {
      EXPECT_EQ(value, 0.0f) << activation;
    }
    for (const float broken : {kNan, kInfinity, -kInfinity}) {
      for (const float value : round_row(quant, {1.0f, broken, 2.0f})) {
        EXPECT_TRUE(std::isnan(value)) << activation;
      }
    }
    EXPECT_TRUE(round_row(quant, {}).empty());
  }
  EXPECT_EQ(round_row(params_of(ActivationQuant::kNone), {kInfinity, 1e-40f}),
            (std::vector<float>{kInfinity, 1e-40f}));
  std::vector<int8_t> quantized(2, 1);
  const std::vector<float> broken = {1.0f, kNan};
  EXPECT_TRUE(
      std::isnan(quantize_s8(params_of(ActivationQuant::kS8Token), broken, quantized.data())));
  EXPECT_EQ(quantized, (std::vector<int8_t>{0, 0}));
}

TEST(RoundActivations, GivesNanForStaticScalesWithoutAReciprocal) {
  for (const float scale : {0.0f, -1.0f, 0x1p-101f, kNan, kInfinity}) {
    for (const auto activation : {ActivationQuant::kS8Static, ActivationQuant::kE4m3Static}) {
      for (const float value : round_row(params_of(activation, scale), {0.0f, 1.0f})) {
        EXPECT_TRUE(std::isnan(value)) << activation << " " << scale;
      }
    }
  }
}

void expect_same(float actual, float expected, const QuantParams& quant, float x) {
  const bool is_same = std::bit_cast<uint32_t>(actual) == std::bit_cast<uint32_t>(expected) ||
                       (std::isnan(actual) && std::isnan(expected));
  ASSERT_TRUE(is_same) << quant.activation << ", x=" << x << ": " << actual << ", not " << expected;
}

void expect_simd_equals_scalar(const QuantParams& quant, const std::vector<float>& x) {
  const auto expected = round_row(quant, x);
  for_each_simd_target([&](const char* /*target*/) {
    std::vector<float> rounded(x.size() + 1, 7.0f);
    round_activations_simd(quant, x.data(), static_cast<int64_t>(x.size()), rounded.data());
    for (size_t k = 0; k < x.size(); ++k) expect_same(rounded[k], expected[k], quant, x[k]);
    EXPECT_EQ(rounded.back(), 7.0f);
  });
}

TEST(RoundActivationsSimd, EqualsTheScalarBitForBit) {
  // With a static scale of 1, x is the value that is rounded: every tie of e4m3 and its neighbours.
  std::vector<float> ties = {0.0f, -0.0f, 1e30f, -1e30f};
  const std::vector<float> values = e4m3_values();
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const float tie = (values[i] + values[i + 1]) / 2;
    for (const float value :
         {values[i], tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      ties.push_back(value);
      ties.push_back(-value);
    }
  }
  for (const ActivationQuant activation : kRounded) {
    expect_simd_equals_scalar(params_of(activation, 1.0f), ties);
    for (size_t size = 0; size < 40; ++size) {
      expect_simd_equals_scalar(params_of(activation), random_row(size, 3));
    }
    std::vector<float> row = random_row(523, 4);
    expect_simd_equals_scalar(params_of(activation, 0.37f), row);
    for (const float factor : {1e-33f, 1e-28f, 1e34f}) {
      std::vector<float> scaled = row;
      for (float& value : scaled) value *= factor;
      expect_simd_equals_scalar(params_of(activation), scaled);
    }
    for (const float broken : {kNan, kInfinity}) {
      for (const size_t index : {size_t{0}, size_t{200}, size_t{522}}) {
        std::vector<float> other = row;
        other[index] = broken;
        expect_simd_equals_scalar(params_of(activation), other);
      }
    }
  }
}

TEST(PrepareActivations, RoundsAndGathers) {
  constexpr int64_t kRows = 70, kInputs = 530;
  GuardedMatrix x(kRows, kInputs);
  x.fill_normal(5);
  for (const ActivationQuant activation :
       {ActivationQuant::kNone, ActivationQuant::kS8Token, ActivationQuant::kE4m3Group128,
        ActivationQuant::kS4S8Block128}) {
    for (const bool is_ordered : {false, true}) {
      QuantParams quant = params_of(activation);
      for (int64_t k = 0; is_ordered && k < kInputs; ++k) {
        quant.input_perm.push_back(static_cast<int32_t>((k * 7 + 5) % kInputs));
      }
      for (const int num_threads : {1, 3}) {
        ThreadPool pool(num_threads);
        ExecContext context{pool};
        GuardedMatrix prepared(kRows, kInputs);
        prepare_activations(context, quant, x.matrix(), prepared.matrix());
        EXPECT_TRUE(prepared.guards_are_intact());
        for (int64_t m = 0; m < kRows; ++m) {
          const auto rounded = round_row(quant, {x.row(m), x.row(m) + kInputs});
          std::vector<float> expected = rounded;
          for (size_t k = 0; is_ordered && k < expected.size(); ++k) {
            expected[k] = rounded[(k * 7 + 5) % expected.size()];
          }
          ASSERT_TRUE(prepared.row_equals(m, expected.data())) << activation << " row " << m;
        }
      }
    }
  }
}

}  // namespace
}  // namespace halley
