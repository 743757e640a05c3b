#include "halley/quant/nestedfp/f16_rounding.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/core/thread_pool.h"

namespace halley {
namespace {

using testing::ThrowsMessage;

template <typename Element>
F16Rounding round(DType dtype, const std::vector<Element>& elements, std::vector<uint16_t>* bits,
                  int num_threads = 2) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  if (bits != nullptr) bits->assign(elements.size(), 0xFFFF);
  return round_to_f16(context, "m.w",
                      {reinterpret_cast<const std::byte*>(elements.data()),
                       dtype,
                       {static_cast<int64_t>(elements.size())}},
                      bits == nullptr ? std::span<uint16_t>() : std::span(*bits));
}

/// f16 of a bf16 value by integers alone: significand times a power of two, rounded to a multiple
/// of f16's unit there, ties to even. Above the largest finite one: infinity's bits.
uint16_t expected_f16(uint16_t bf16) {
  const uint32_t exponent = (bf16 >> 7) & 0xFFu;
  const uint32_t fraction = bf16 & 0x7Fu;
  const uint64_t significand = exponent == 0 ? fraction : fraction | 0x80u;
  const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - 127 - 7;  // of its last bit
  const auto sign = static_cast<uint16_t>(bf16 & 0x8000u);
  if (significand == 0) return sign;
  // f16's unit is 2^-24 up to 2^-14, and 2^(e - 10) above.
  const int top = power + 63 - std::countl_zero(significand);
  if (top >= 16) return sign | 0x7C00u;
  const int unit = std::max(top - 10, -24);
  uint64_t units = 0;
  if (power >= unit) {
    units = significand << (power - unit);
  } else if (unit - power < 60) {
    const int shift = unit - power;
    const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
    const uint64_t half = uint64_t{1} << (shift - 1);
    units = significand >> shift;
    if (rest > half || (rest == half && (units & 1) != 0)) ++units;
  }
  // A carry out of the fraction is the next exponent.
  const auto below = static_cast<uint64_t>(std::max(unit + 24, 0)) << 10;
  return static_cast<uint16_t>(sign | (below + units));
}

TEST(F16Rounding, EveryFiniteBf16GoesToTheNearestTiesToEven) {
  std::vector<uint16_t> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7F80u) != 0x7F80u) values.push_back(static_cast<uint16_t>(bits));
  }
  std::vector<uint16_t> rounded;
  const F16Rounding counts = round(DType::kBf16, values, &rounded);
  int64_t num_changed = 0, num_zeroed = 0, num_beyond = 0, num_overflows = 0;
  double worst_relative_error = 0, worst_absolute_error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(rounded[i], expected_f16(values[i])) << values[i];
    const double value = bf16_to_f32(values[i]), got = f16_to_f32(rounded[i]);
    num_beyond += std::fabs(got) > 1.75;
    num_overflows += std::isinf(got);
    if (std::isinf(got) || got == value) continue;
    ++num_changed;
    num_zeroed += got == 0;
    worst_relative_error =
        std::max(worst_relative_error, std::fabs(got - value) / std::fabs(value));
    worst_absolute_error = std::max(worst_absolute_error, std::fabs(got - value));
  }
  EXPECT_EQ(counts.num_values, static_cast<int64_t>(values.size()));
  EXPECT_EQ(counts.num_changed, num_changed);
  EXPECT_EQ(counts.num_zeroed, num_zeroed);
  EXPECT_EQ(counts.num_beyond, num_beyond);
  EXPECT_EQ(counts.num_overflows, num_overflows);
  EXPECT_EQ(counts.worst_relative_error, worst_relative_error);
  EXPECT_EQ(counts.worst_absolute_error, worst_absolute_error);
  EXPECT_EQ(counts.worst_absolute_error, 0x1p-25);  // half of f16's smallest unit
  EXPECT_EQ(counts.worst_relative_error, 1);
  EXPECT_EQ(counts.max, std::bit_cast<float>(0x7F7F0000u));
  EXPECT_EQ(counts.min, -counts.max);
}

TEST(F16Rounding, F32IsRoundedOnce) {
  struct Case {
    float value;
    uint16_t bits;
  };
  for (const Case& c : std::array<Case, 12>{{{0.0f, 0x0000},
                                             {-0.0f, 0x8000},
                                             {1.0f + 0x1p-11f, 0x3C00},  // tie to even
                                             {1.0f + 0x3p-11f, 0x3C02},  // tie to even
                                             {1.0f + 0x1p-11f + 0x1p-23f, 0x3C01},
                                             {0x1p-24f, 0x0001},
                                             {0x1p-25f, 0x0000},  // tie to zero
                                             {-0x1.000002p-25f, 0x8001},
                                             {0x1.8p-24f, 0x0002},    // tie to even
                                             {0x1.FFEp-15f, 0x0400},  // tie to normal
                                             {65519.996f, 0x7BFF},
                                             {65520.0f, 0x7C00}}}) {
    std::vector<uint16_t> bits;
    const F16Rounding counts = round(DType::kF32, std::vector<float>{c.value}, &bits);
    EXPECT_EQ(bits[0], c.bits) << c.value;
    EXPECT_EQ(counts.num_overflows, c.bits == 0x7C00 ? 1 : 0) << c.value;
    EXPECT_EQ(counts.num_zeroed, c.value == 0x1p-25f ? 1 : 0) << c.value;
  }
}

TEST(F16Rounding, EveryFiniteF16StaysAsItIs) {
  std::vector<uint16_t> values, bits;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00u) != 0x7C00u) values.push_back(static_cast<uint16_t>(half));
  }
  const F16Rounding counts = round(DType::kF16, values, &bits);
  EXPECT_EQ(bits, values);
  EXPECT_EQ(counts.num_changed, 0);
  EXPECT_EQ(counts.num_overflows, 0);
  EXPECT_EQ(counts.num_beyond, 2 * (0x7C00 - 0x3F01));
  EXPECT_EQ(counts.max, 65504);
}

TEST(F16Rounding, ThreadsAndTasksDoNotMatter) {
  constexpr size_t kCount = 3 * 65536 + 7;
  std::vector<float> values(kCount, 0.5f);
  values[65535] = 0x1p-30f;
  values[65536] = -3.0f;
  values[2 * 65536 + 5] = 7e4f;
  values[kCount - 1] = 1.0f / 3;
  std::vector<uint16_t> one, four;
  const F16Rounding counts = round(DType::kF32, values, &one, 1);
  const F16Rounding same = round(DType::kF32, values, &four, 4);
  EXPECT_EQ(one, four);
  EXPECT_EQ(to_json(counts), to_json(same));
  EXPECT_EQ(to_json(counts), to_json(round<float>(DType::kF32, values, nullptr, 3)));
  for (const F16Rounding* of : {&counts, &same}) {
    EXPECT_EQ(of->num_values, static_cast<int64_t>(kCount));
    EXPECT_EQ(of->num_changed, 2);
    EXPECT_EQ(of->num_zeroed, 1);
    EXPECT_EQ(of->first_beyond, 65536);
    EXPECT_EQ(of->first_overflow, 2 * 65536 + 5);
    EXPECT_EQ(of->min, -3);
    EXPECT_EQ(of->max, 7e4f);
  }
}

TEST(F16Rounding, OfNothingIsNothing) {
  std::vector<uint16_t> bits;
  EXPECT_EQ(round<float>(DType::kF32, {}, &bits).num_values, 0);
}

TEST(F16Rounding, RejectsWhatIsNotFiniteByName) {
  const std::vector<float> values = {0, 1, std::numeric_limits<float>::quiet_NaN(), 0};
  EXPECT_THAT(([&] { round(DType::kF32, values, nullptr); }),
              ThrowsMessage<CheckpointError>(
                  "tensor \"m.w\": expected finite values, got f32 nan at [2]. The checkpoint is "
                  "damaged: fetch it again."));
  EXPECT_THAT(([] {
                round(DType::kBf16, std::vector<uint16_t>{0, 0xFF80}, nullptr);
              }),
              ThrowsMessage<CheckpointError>(testing::HasSubstr("got bf16 -inf at [1]")));
  EXPECT_THAT(([] { round(DType::kF16, std::vector<uint16_t>{0x7C00}, nullptr); }),
              ThrowsMessage<CheckpointError>(testing::HasSubstr("got f16 inf at [0]")));
}

TEST(F16Rounding, NamesTheIndexInTheShape) {
  EXPECT_EQ(index_in_words({3, 5}, 7), "[1, 2]");
  EXPECT_EQ(index_in_words({2, 3, 5}, 29), "[1, 2, 4]");
}

}  // namespace
}  // namespace halley
