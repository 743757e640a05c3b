#include "halley/kernels/moe/moe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace halley {
namespace {

// Softmax and its normalisation in f32: a few roundings of 6e-8.
constexpr double kWeightTolerance = 1e-6;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The definition, in f64: expert ids in ascending order and their weights.
std::vector<std::pair<int32_t, double>> route_reference(const float* logits, int64_t num_experts,
                                                        int64_t num_chosen, bool is_normalized) {
  std::vector<std::pair<double, int32_t>> order;
  double total = 0;
  for (int32_t e = 0; e < num_experts; ++e) {
    const double value = std::exp(static_cast<double>(logits[e]));
    total += value;
    order.emplace_back(-value, e);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::pair<int32_t, double>> chosen;
  double sum = 0;
  for (int64_t i = 0; i < num_chosen; ++i) {
    const auto& [negative, expert] = order[static_cast<size_t>(i)];
    chosen.emplace_back(expert, -negative / total);
    sum += -negative / total;
  }
  for (auto& [expert, weight] : chosen) weight /= is_normalized ? sum : 1.0;
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

TEST(RouteTokens, AgreesWithTheDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for (const int64_t num_experts : {1, 8, 60, 128}) {
    for (const int64_t num_chosen : {int64_t{1}, std::min<int64_t>(8, num_experts), num_experts}) {
      for (const bool is_normalized : {false, true}) {
        std::vector<float> logits(static_cast<size_t>(5 * num_experts));
        for (float& logit : logits) logit = normal(random);
        const MoeRouting routing =
            route_tokens(f32_matrix(logits.data(), 5, num_experts), num_chosen, is_normalized);
        for (int64_t m = 0; m < 5; ++m) {
          const auto expected = route_reference(logits.data() + m * num_experts, num_experts,
                                                num_chosen, is_normalized);
          for (size_t i = 0; i < expected.size(); ++i) {
            const size_t at = static_cast<size_t>(m * num_chosen) + i;
            ASSERT_EQ(routing.expert_of[at], expected[i].first);
            ASSERT_NEAR(routing.weight_of[at], expected[i].second, kWeightTolerance);
          }
        }
      }
    }
  }
}

TEST(RouteTokens, TheLowerExpertWinsATie) {
  const std::vector<float> logits = {1, 2, 2, 2, 1, 5};
  const MoeRouting routing = route_tokens(f32_matrix(logits.data(), 1, 6), 3, true);
  EXPECT_EQ(routing.expert_of, (std::vector<int32_t>{1, 2, 5}));
}

TEST(RouteTokens, SlotsAreSortedByExpertThenRow) {
  const std::vector<float> logits = {0, 9, 8,  //
                                     9, 0, 8,  //
                                     9, 8, 0};
  const MoeRouting routing = route_tokens(f32_matrix(logits.data(), 3, 3), 2, false);
  EXPECT_EQ(routing.expert_begin, (std::vector<int64_t>{0, 2, 4, 6}));
  EXPECT_EQ(routing.slot_row, (std::vector<int32_t>{1, 2, 0, 2, 0, 1}));
  EXPECT_EQ(routing.row_slots, (std::vector<int32_t>{2, 4, 0, 5, 1, 3}));
}

TEST(RouteTokens, ARowWithoutASoftmaxGoesToTheLowestExpertsWithNan) {
  const std::vector<float> logits = {
      0,          1,          kNan, 3, 4,          5,          0,          kInfinity,
      2,          3,          4,    5, -kInfinity, -kInfinity, -kInfinity, -kInfinity,
      -kInfinity, -kInfinity, 0,    1, 2,          3,          4,          -kInfinity};
  const MoeRouting routing = route_tokens(f32_matrix(logits.data(), 4, 6), 2, true);
  EXPECT_EQ(routing.expert_of, (std::vector<int32_t>{0, 1, 0, 1, 0, 1, 3, 4}));
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(routing.weight_of[i])) << i;
  EXPECT_FALSE(std::isnan(routing.weight_of[6]));
}

TEST(RouteTokens, NoRowsGiveNoSlots) {
  const MoeRouting routing =
      route_tokens(f32_matrix(static_cast<const float*>(nullptr), 0, 4), 2, true);
  EXPECT_TRUE(routing.slot_row.empty());
  EXPECT_EQ(routing.expert_begin, (std::vector<int64_t>{0, 0, 0, 0, 0}));
}

std::vector<float> normal_values(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(MoeSlots, ThreadsDoNotChangeABit) {
  constexpr int64_t kRows = 64, kColumns = 1000, kChosen = 2, kExperts = 4;
  std::mt19937 random(7);
  const std::vector<float> logits = normal_values(kRows * kExperts, random);
  const std::vector<float> x = normal_values(kRows * kColumns, random);
  const MoeRouting routing =
      route_tokens(f32_matrix(logits.data(), kRows, kExperts), kChosen, true);
  ThreadPool pool(3);
  ExecContext context{pool};
  std::vector<float> slots(kRows * kChosen * kColumns, kNan), y(kRows * kColumns, kNan);
  std::vector<float> slots_alone = slots, y_alone = y;
  const ConstMatrix from = f32_matrix(x.data(), kRows, kColumns);
  gather_slots(context, routing, from, f32_matrix(slots.data(), kRows * kChosen, kColumns));
  gather_slots(routing, from, f32_matrix(slots_alone.data(), kRows * kChosen, kColumns));
  EXPECT_EQ(slots, slots_alone);
  combine_slots(context, routing, f32_matrix(slots.data(), kRows * kChosen, kColumns),
                f32_matrix(y.data(), kRows, kColumns));
  combine_slots(routing, f32_matrix(slots.data(), kRows * kChosen, kColumns),
                f32_matrix(y_alone.data(), kRows, kColumns));
  EXPECT_EQ(y, y_alone);
}

/// Every expert multiplies by its id + 1, so that a slot of the wrong expert shows.
void run_experts(const MoeRouting& routing, int64_t first_expert, Matrix slots) {
  for (size_t e = 0; e + 1 < routing.expert_begin.size(); ++e) {
    const auto gain = static_cast<float>(first_expert + static_cast<int64_t>(e) + 1);
    for (int64_t slot = routing.expert_begin[e]; slot < routing.expert_begin[e + 1]; ++slot) {
      for (int64_t i = 0; i < slots.num_cols; ++i) slots.row<float>(slot)[i] *= gain;
    }
  }
}

TEST(MoeSlots, GatherThenCombineIsTheWeightedSumInAscendingOrder) {
  constexpr int64_t kRows = 9, kColumns = 21, kChosen = 3, kExperts = 7;
  std::mt19937 random(5);
  const std::vector<float> logits = normal_values(kRows * kExperts, random);
  const std::vector<float> x = normal_values(kRows * kColumns, random);
  const MoeRouting routing =
      route_tokens(f32_matrix(logits.data(), kRows, kExperts), kChosen, true);
  std::vector<float> slots(kRows * kChosen * kColumns, kNan), y(kRows * kColumns, kNan);
  const Matrix slot_matrix = f32_matrix(slots.data(), kRows * kChosen, kColumns);
  gather_slots(routing, f32_matrix(x.data(), kRows, kColumns), slot_matrix);
  run_experts(routing, 0, slot_matrix);
  combine_slots(routing, slot_matrix, f32_matrix(y.data(), kRows, kColumns));
  for (size_t m = 0; m < kRows; ++m) {
    for (size_t i = 0; i < kColumns; ++i) {
      float expected = 0;
      for (size_t c = 0; c < kChosen; ++c) {
        const auto gain = static_cast<float>(routing.expert_of[m * kChosen + c] + 1);
        expected += routing.weight_of[m * kChosen + c] * (x[m * kColumns + i] * gain);
      }
      ASSERT_EQ(y[m * kColumns + i], expected) << m << "," << i;
    }
  }
}

/// Ranks that have whole experts: each works on its own slots, and all sums are added.
TEST(MoeSlots, PartsOfTheExpertsAddUpToAll) {
  constexpr int64_t kRows = 13, kColumns = 5, kChosen = 3, kExperts = 7;
  std::mt19937 random(11);
  const std::vector<float> logits = normal_values(kRows * kExperts, random);
  const std::vector<float> x = normal_values(kRows * kColumns, random);
  const MoeRouting all = route_tokens(f32_matrix(logits.data(), kRows, kExperts), kChosen, true);
  const ConstMatrix rows = f32_matrix(x.data(), kRows, kColumns);
  const auto sum_of = [&](int64_t begin, int64_t end) {
    MoeRouting routing = all;
    keep_experts(routing, begin, end);
    EXPECT_EQ(routing.expert_begin.size(), static_cast<size_t>(end - begin) + 1);
    EXPECT_EQ(routing.expert_begin.back(), static_cast<int64_t>(routing.slot_row.size()));
    std::vector<float> slots(routing.slot_row.size() * kColumns, kNan), y(kRows * kColumns, kNan);
    const auto num_slots = static_cast<int64_t>(routing.slot_row.size());
    const Matrix slot_matrix = f32_matrix(slots.data(), num_slots, kColumns);
    gather_slots(routing, rows, slot_matrix);
    run_experts(routing, begin, slot_matrix);
    combine_slots(routing, slot_matrix, f32_matrix(y.data(), kRows, kColumns));
    return y;
  };
  const std::vector<float> whole = sum_of(0, kExperts);
  const std::vector<int64_t> bounds = {0, 2, 2, 3, 7};
  std::vector<float> added(whole.size());
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    const std::vector<float> y = sum_of(bounds[part], bounds[part + 1]);
    for (size_t i = 0; i < added.size(); ++i) added[i] += y[i];
  }
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(added[i], whole[i], 1e-5) << i;
}

TEST(RouteTokensDeathTest, KeepsNoExpertsBehindTheLast) {
  const std::vector<float> logits = {1, 2};
  MoeRouting routing = route_tokens(f32_matrix(logits.data(), 1, 2), 1, true);
  EXPECT_DEATH(keep_experts(routing, 1, 3), "num_experts");
}

TEST(RouteTokensDeathTest, RejectsMoreExpertsThanThereAre) {
  const std::vector<float> logits = {1, 2};
  EXPECT_DEATH(route_tokens(f32_matrix(logits.data(), 1, 2), 3, true), "num_experts_per_token");
}

}  // namespace
}  // namespace halley
