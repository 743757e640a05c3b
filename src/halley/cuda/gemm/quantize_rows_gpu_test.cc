// Activations rounded on the GPU: bit for bit what the CPU's definition says.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/cuda/gemm/lane_order.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/kernels/gemm/activation_quant.h"

namespace halley::cuda {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct RoundingCase {
  ActivationQuant kind;
  int64_t num_s8_inputs = 0;
  float s4_clip = 1;
  bool has_order = false;
  float scale = 0.03f;
};

std::ostream& operator<<(std::ostream& out, const RoundingCase& of) {
  return out << of.kind << " s8 " << of.num_s8_inputs << " clip " << of.s4_clip
             << (of.has_order ? " ordered" : "") << " scale " << of.scale;
}

const std::vector<RoundingCase>& rounding_cases() {
  static const std::vector<RoundingCase> kCases = {
      {.kind = ActivationQuant::kS8Token},
      {.kind = ActivationQuant::kS8Static},
      {.kind = ActivationQuant::kS8Static, .scale = 1e-30f},
      {.kind = ActivationQuant::kS8Static, .scale = kNan},
      {.kind = ActivationQuant::kE4m3Token},
      {.kind = ActivationQuant::kE4m3Group128},
      {.kind = ActivationQuant::kE4m3Static},
      {.kind = ActivationQuant::kE4m3Static, .scale = 0x1p-101f},
      {.kind = ActivationQuant::kS4S8Block128, .num_s8_inputs = 128, .s4_clip = 0.9f},
      {.kind = ActivationQuant::kS4S8Block128, .num_s8_inputs = 0, .has_order = true},
      {.kind = ActivationQuant::kS4S8Block128,
       .num_s8_inputs = 256,
       .s4_clip = 0.7f,
       .has_order = true},
      {.kind = ActivationQuant::kS4S8Block128, .s4_clip = 0},
  };
  return kCases;
}

/// Rows of ordinary numbers, then rows for every special one.
std::vector<float> make_inputs(int64_t M, int64_t K, DType dtype) {
  std::mt19937 random(static_cast<uint32_t>(M * 1000 + K));
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (int64_t m = 0; m < M; ++m) {
    // Rows of all sizes that the type has, and one of zeros.
    const float sizes[] = {1.0f, 1e-3f, 100.0f, 0.0f, 1e-38f, dtype == DType::kF16 ? 1e4f : 1e37f};
    const float size = sizes[m % 6];
    for (int64_t k = 0; k < K; ++k) x.push_back(size * normal(random));
    if (K == 0) continue;
    const float specials[] = {kNan, INFINITY, -INFINITY};
    const auto place = static_cast<size_t>(m * K + static_cast<int64_t>(random() % uint32_t(K)));
    if (m % 7 == 5) x[place] = specials[m % 3];
    if (m % 7 == 6) x[place] = -0.0f;
    // Halves of steps: ties.
    if (m % 7 == 3) {
      for (int64_t k = 0; k < K; ++k) {
        x[static_cast<size_t>(m * K + k)] = static_cast<float>(k % 255 - 127) * 0.5f;
      }
      x[static_cast<size_t>(m * K)] = 127.0f;
    }
  }
  for (float& value : x) {
    if (dtype == DType::kF16) value = f16_to_f32(f32_to_f16(value));
    if (dtype == DType::kBf16) value = bf16_to_f32(f32_to_bf16(value));
  }
  return x;
}

QuantParams params_of(const RoundingCase& of, int64_t K) {
  QuantParams quant;
  quant.activation = of.kind;
  quant.activation_scale = of.scale;
  quant.num_s8_inputs = of.num_s8_inputs;
  quant.s4_clip = of.s4_clip;
  if (of.has_order) {
    quant.input_perm.resize(static_cast<size_t>(K));
    std::iota(quant.input_perm.begin(), quant.input_perm.end(), 0);
    std::shuffle(quant.input_perm.begin(), quant.input_perm.end(), std::mt19937(5));
  }
  return quant;
}

bool is_same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

class QuantizeRowsGpuTest : public testing::Test {
 protected:
  CudaDeviceInfo device_ = use_cuda_device(0);
  CudaStream stream_;
  DeviceArena workspace_{size_t{1} << 20, "a test's workspace"};
  CudaContext context_{device_, stream_, workspace_};

  /// What the CPU says, rounded to the type of the output.
  static std::vector<float> expected_values(const QuantParams& quant, const std::vector<float>& x,
                                            int64_t M, int64_t K, DType dtype) {
    std::vector<float> expected(x.size());
    for (int64_t m = 0; m < M; ++m) {
      const auto begin = static_cast<size_t>(m * K);
      round_activations(quant, std::span(x).subspan(begin, static_cast<size_t>(K)),
                        expected.data() + begin);
    }
    for (float& value : expected) {
      if (dtype == DType::kF16) value = f16_to_f32(f32_to_f16(value));
      if (dtype == DType::kBf16) value = bf16_to_f32(f32_to_bf16(value));
    }
    return expected;
  }

  void check_values(const RoundingCase& of, int64_t M, int64_t K, DType x_dtype, DType dtype) {
    const QuantParams quant = params_of(of, K);
    const std::vector<float> values = make_inputs(M, K, x_dtype);
    DeviceMatrix x(x_dtype, M, K), rounded(dtype, M, K);
    x.set(values);
    const DeviceArray<int32_t> order(quant.input_perm.empty() ? std::vector<int32_t>{0}
                                                              : quant.input_perm);
    round_rows(context_, device_quant(of, quant, order), x.matrix(), rounded.matrix());
    const std::vector<float> got = rounded.get(stream_);
    const std::vector<float> expected = expected_values(quant, values, M, K, dtype);
    EXPECT_TRUE(rounded.guards_are_intact(stream_));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(is_same(got[i], expected[i]))
          << "[" << i / static_cast<size_t>(K) << ", " << i % static_cast<size_t>(K) << "]: x "
          << values[i] << ", expected " << expected[i] << ", got " << got[i];
    }
  }

  static CudaActivationQuant device_quant(const RoundingCase& of, const QuantParams& quant,
                                          const DeviceArray<int32_t>& order) {
    return {.kind = of.kind,
            .scale = of.scale,
            .num_s8_inputs = of.num_s8_inputs,
            .s4_clip = of.s4_clip,
            .input_perm = quant.input_perm.empty() ? nullptr : order.data()};
  }

  /// Codes times scales are the CPU's values; padding is zero; sums are those of the codes.
  void check_codes(const RoundingCase& of, int64_t M, int64_t K, DType x_dtype = DType::kF32) {
    const QuantParams quant = params_of(of, K);
    const std::vector<float> values = make_inputs(M, K, x_dtype);
    DeviceMatrix x(x_dtype, M, K);
    x.set(values);
    const DeviceArray<int32_t> order(quant.input_perm.empty() ? std::vector<int32_t>{0}
                                                              : quant.input_perm);
    const int64_t stride = (K + 15) / 16 * 16;
    const DType code_dtype = activation_code_dtype(of.kind);
    const int64_t group = activation_group_inputs(of.kind, K);
    const int64_t num_groups = (K + group - 1) / group;
    DeviceMatrix codes(code_dtype, M, stride), scales(DType::kF32, M, num_groups, 0);
    DeviceMatrix sums(DType::kI32, M, 1, 0);
    const bool has_sums =
        of.kind == ActivationQuant::kS8Token || of.kind == ActivationQuant::kS8Static;
    Matrix out = codes.matrix();
    out.num_cols = K;
    quantize_rows(context_, device_quant(of, quant, order), x.matrix(),
                  {.codes = out,
                   .padded_cols = stride,
                   .scales = scales.matrix().row<float>(0),
                   .sums = has_sums ? sums.matrix().row<int32_t>(0) : nullptr});
    const auto got = codes.get(stream_), got_scales = scales.get(stream_);
    const auto got_sums = sums.get(stream_);
    EXPECT_TRUE(codes.guards_are_intact(stream_) && scales.guards_are_intact(stream_) &&
                sums.guards_are_intact(stream_));
    const auto expected = expected_values(quant, values, M, K, DType::kF32);
    for (int64_t m = 0; m < M; ++m) {
      double sum = 0;
      for (int64_t k = 0; k < stride; ++k) {
        const float code = got[static_cast<size_t>(m * stride + k)];
        sum += code;
        if (k >= K) {
          ASSERT_EQ(code, 0.0f) << "[" << m << ", " << k << "]";
          continue;
        }
        const int64_t natural =
            quant.input_perm.empty() ? k : quant.input_perm[static_cast<size_t>(k)];
        const float scale = got_scales[static_cast<size_t>(m * num_groups + k / group)];
        ASSERT_TRUE(is_same(scale * code, expected[static_cast<size_t>(m * K + natural)]))
            << "[" << m << ", " << k << "]: scale " << scale << ", code " << code << ", expected "
            << expected[static_cast<size_t>(m * K + natural)];
      }
      if (has_sums) {
        EXPECT_EQ(got_sums[static_cast<size_t>(m)], sum) << m;
      }
    }
  }
};

TEST_F(QuantizeRowsGpuTest, LaneOrderOnlyMovesCodes) {
  for (const int64_t K : {128, 384, 4224, 33024}) {
    constexpr int64_t kRows = 5;
    DeviceMatrix x(DType::kF32, kRows, K);
    x.set(make_inputs(kRows, K, DType::kF32));
    const DeviceMatrix plain(DType::kF8E4M3, kRows, K, 16), ordered(DType::kF8E4M3, kRows, K, 16);
    const DeviceMatrix scales(DType::kF32, kRows, 1, 0);
    for (const bool has_order : {false, true}) {
      quantize_rows(context_, {.kind = ActivationQuant::kE4m3Token, .has_lane_order = has_order},
                    x.matrix(),
                    {.codes = (has_order ? ordered : plain).matrix(),
                     .padded_cols = K,
                     .scales = scales.matrix().row<float>(0)});
    }
    const std::vector<float> expected = plain.get(stream_), got = ordered.get(stream_);
    EXPECT_TRUE(ordered.guards_are_intact(stream_));
    for (int64_t i = 0; i < kRows * K; ++i) {
      const int64_t begin = i / kLaneInputs * kLaneInputs;
      const int place = lane_place(static_cast<int>(i - begin));
      ASSERT_TRUE(
          is_same(got[static_cast<size_t>(begin + place)], expected[static_cast<size_t>(i)]))
          << "row " << i / K << ", input " << i % K;
    }
  }
}

TEST_F(QuantizeRowsGpuTest, ValuesAreThoseOfTheCpu) {
  for (const RoundingCase& of : rounding_cases()) {
    for (const int64_t K : {1, 31, 127, 128, 129, 256, 1000, 4096}) {
      SCOPED_TRACE(testing::Message() << of << " K " << K);
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
        check_values(of, 21, K, DType::kF32, dtype);
        check_values(of, 21, K, dtype, dtype);
      }
    }
  }
}

TEST_F(QuantizeRowsGpuTest, NoRoundingOnlyChangesTheType) {
  const RoundingCase none = {.kind = ActivationQuant::kNone};
  check_values(none, 21, 333, DType::kF32, DType::kF16);
  check_values(none, 21, 333, DType::kF16, DType::kBf16);
  check_values(none, 21, 333, DType::kBf16, DType::kF32);
}

TEST_F(QuantizeRowsGpuTest, CodesAreThoseOfTheCpu) {
  for (const RoundingCase& of : rounding_cases()) {
    for (const int64_t K : {1, 15, 16, 17, 128, 130, 1001, 4096}) {
      SCOPED_TRACE(testing::Message() << of << " K " << K);
      check_codes(of, 21, K);
    }
  }
}

TEST_F(QuantizeRowsGpuTest, CodesOfManyRowsAreThoseOfTheCpu) {
  for (const ActivationQuant kind : {ActivationQuant::kS8Token, ActivationQuant::kS8Static,
                                     ActivationQuant::kE4m3Token, ActivationQuant::kE4m3Static}) {
    for (const int64_t K : {8, 1000, 1004, 4096, 14336}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
        SCOPED_TRACE(testing::Message() << kind << " K " << K << " " << dtype);
        check_codes({.kind = kind}, 300, K, dtype);
      }
    }
    check_codes({.kind = kind}, 30, 32768, DType::kF16);
    check_codes({.kind = kind}, 30, 33000, DType::kF16);
  }
}

TEST_F(QuantizeRowsGpuTest, TakesManyRowsAndNone) {
  check_values({.kind = ActivationQuant::kS8Token}, 70000, 16, DType::kF16, DType::kF16);
  check_values({.kind = ActivationQuant::kE4m3Group128}, 70000, 16, DType::kF16, DType::kF16);
  check_values({.kind = ActivationQuant::kS8Token}, 0, 64, DType::kF16, DType::kF16);
}

TEST_F(QuantizeRowsGpuTest, EveryE4m3CodeIsTheCpus) {
  // All boundaries between codes and their neighbours, through a scale of 1.
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7E; ++code) {
    const float low = e4m3_to_f32(static_cast<uint8_t>(code));
    const float high = e4m3_to_f32(static_cast<uint8_t>(code + 1));
    const float middle = 0.5f * (low + high);
    for (const float value :
         {low, middle, std::nextafter(middle, low), std::nextafter(middle, high)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  for (const float value : {448.0f, 449.0f, 463.9f, 464.0f, 465.0f, 1e30f}) values.push_back(value);
  const auto K = static_cast<int64_t>(values.size());
  DeviceMatrix x(DType::kF32, 1, K), rounded(DType::kF32, 1, K);
  x.set(values);
  round_rows(context_, {.kind = ActivationQuant::kE4m3Static, .scale = 1.0f}, x.matrix(),
             rounded.matrix());
  const auto got = rounded.get(stream_);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(is_same(got[i], e4m3_to_f32(f32_to_e4m3(values[i])))) << values[i];
  }
}

}  // namespace
}  // namespace halley::cuda
