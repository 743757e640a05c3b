// Weights rounded to 8-bit floats.
#include "halley/quant/stored/float8_tensors.h"

#include <cmath>
#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float8.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::ThrowsMessage;

std::vector<float> numbers_in(const CheckpointTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

TEST(Float8Tensors, CodesAreTheNearestOfAll) {
  std::mt19937 random(3);
  std::vector<float> weight;
  for (int i = 0; i < 5 * 40; ++i) {
    const float size = std::ldexp(1.0f, -static_cast<int>(random() % 24));
    weight.push_back(size * (static_cast<float>(random() % 2001) / 1000.0f - 1.0f));
  }
  for (const auto scales : {Float8Scales::kTensor, Float8Scales::kOutput}) {
    const auto tensors = encode_float8("a", weight, 40, scales, std::nullopt);
    ASSERT_EQ(tensors.size(), 2u);
    const std::vector<float> found = numbers_in(tensors[1]);
    EXPECT_EQ(tensors[1].info.shape, scales == Float8Scales::kTensor ? Shape{1} : (Shape{5, 1}));
    ASSERT_EQ(found.size(), scales == Float8Scales::kTensor ? 1u : 5u);
    for (size_t i = 0; i < weight.size(); ++i) {
      const double scale = found[found.size() == 1 ? 0 : i / 40];
      const auto distance = [&](uint8_t code) {
        return std::fabs(scale * e4m3_to_f32(code) - weight[i]);
      };
      const auto code = static_cast<uint8_t>(tensors[0].data[i]);
      for (int other = 0; other < 256; ++other) {
        if ((other & 0x7F) == 0x7F) continue;
        // The quotient that is rounded has an error of 2^-24.
        EXPECT_LE(distance(code),
                  distance(static_cast<uint8_t>(other)) + 0x1p-22 * std::fabs(weight[i]))
            << i << ": " << other;
      }
    }
  }
}

TEST(Float8Tensors, LargestNumbersFillTheRangeAndZerosStayZero) {
  const std::vector<float> weight = {-3, 1, 0, 0, 1e-44f, 0};
  const auto tensors = encode_float8("a", weight, 2, Float8Scales::kOutput, 0.5f);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].info.shape, (Shape{3, 2}));
  EXPECT_EQ(tensors[1].info.shape, (Shape{3, 1}));
  EXPECT_EQ(tensors[2].info.name, "a.input_scale");
  EXPECT_EQ(tensors[2].info.shape, Shape{1});
  EXPECT_THAT(numbers_in(tensors[1]), ElementsAre(3.0f / 448, 1.0f, 0x1p-100f));
  EXPECT_THAT(numbers_in(tensors[2]), ElementsAre(0.5f));
  EXPECT_EQ(tensors[0].data[0], std::byte{0xFE});
  for (size_t i = 2; i < 6; ++i) EXPECT_EQ(tensors[0].data[i], std::byte{0});
}

TEST(Float8Tensors, RejectsWhatIsNoNumber) {
  const std::vector<float> weight = {1, 2, 3, -INFINITY};
  EXPECT_THAT([&] { encode_float8("a", weight, 2, Float8Scales::kOutput, std::nullopt); },
              ThrowsMessage<CheckpointError>("layer \"a\": expected finite weights, got -inf at "
                                             "[1, 1]. The file is damaged: fetch it again."));
}

}  // namespace
}  // namespace halley
