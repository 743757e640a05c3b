#include "halley/parallel/base/reduce_ranks.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

#include "halley/core/float16.h"

namespace halley {
namespace {

using testing::ElementsAre;

template <typename T>
std::vector<T> reduce(Reduction reduction, DType dtype, const std::vector<std::vector<T>>& inputs) {
  std::vector<T> result(inputs[0].size());
  std::vector<const std::byte*> sources;
  for (const auto& input : inputs) {
    sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
  }
  auto* to = reinterpret_cast<std::byte*>(result.data());
  reduce_ranks(reduction, dtype, sources, {&to, 1}, result.size());
  return result;
}

TEST(ReduceRanks, AddsInAscendingOrder) {
  // (1 + 2^30) - 2^30 loses the 1 in f32; another order would keep it.
  EXPECT_THAT(reduce<float>(Reduction::kSum, DType::kF32, {{1, 2}, {0x1p30f, 3}, {-0x1p30f, 4}}),
              ElementsAre(0, 9));
}

TEST(ReduceRanks, KeepsNegativeZeroAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto sums = reduce<float>(Reduction::kSum, DType::kF32, {{-0.0f, infinity}, {-0.0f, 1}});
  EXPECT_TRUE(std::signbit(sums[0]));
  EXPECT_EQ(sums[1], infinity);
}

TEST(ReduceRanks, RoundsBf16Once) {
  const uint16_t one = f32_to_bf16(1), small = f32_to_bf16(0x1p-9f);  // a step at 1 is 2^-7
  EXPECT_THAT(
      reduce<uint16_t>(Reduction::kSum, DType::kBf16, {{one}, {small}, {small}, {small}, {small}}),
      ElementsAre(f32_to_bf16(1 + 0x1p-7f)));
}

TEST(ReduceRanks, TakesTheLargest) {
  EXPECT_THAT(reduce<float>(Reduction::kMax, DType::kF32, {{-3, 5, 0}, {-1, 2, 0}, {-2, 4, 7}}),
              ElementsAre(-1, 5, 7));
}

TEST(ReduceRanks, WritesEveryResultOverItsSource) {
  std::array<std::vector<float>, 3> ranks;
  std::vector<std::byte*> parts;
  for (auto& rank : ranks) {
    rank.assign(1000, 1.5f);
    parts.push_back(reinterpret_cast<std::byte*>(rank.data()));
  }
  reduce_ranks(Reduction::kSum, DType::kF32, parts, parts, 999);
  for (const auto& rank : ranks) {
    EXPECT_THAT(std::vector<float>(rank.begin(), rank.end() - 1), testing::Each(4.5f));
    EXPECT_EQ(rank.back(), 1.5f);
  }
}

}  // namespace
}  // namespace halley
