#include "halley/cuda/attention/attention_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::HasSubstr;

AttentionProblem problem_of(int64_t num_heads, int64_t window = 0) {
  return {num_heads, 0.1f, 0.0f, window};
}

constexpr int64_t kPositions[] = {0,    1,    127,  128,   511,   1023,  1024,  1025,   2047,
                                  2048, 4095, 8191, 16383, 16384, 32767, 65535, 131071, 1000000};

TEST(AttentionPlan, SplitsOfARowCoverWhatItSeesOnceInAscendingOrder) {
  for (const int64_t window : {0, 1, 100, 1024, 5000}) {
    for (const int64_t position : kPositions) {
      const auto bounds = split_boundaries(problem_of(8, window), position);
      const int64_t begin = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
      EXPECT_EQ(bounds.front(), begin);
      EXPECT_EQ(bounds.back(), position + 1);
      EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end(), std::less_equal<>()));
      EXPECT_LE(bounds.size() - 1, static_cast<size_t>(kNumSplitsMax)) << position;
      for (size_t i = 1; i + 1 < bounds.size(); ++i) {
        EXPECT_EQ(bounds[i] % split_tokens(position + 1 - begin), 0) << position;
      }
    }
  }
}

TEST(AttentionPlan, SplitSizesArePowersOfTwoOfAtLeastFourTilesOf32) {
  for (const int64_t position : kPositions) {
    const int64_t size = split_tokens(position + 1);
    EXPECT_GE(size, 128);
    EXPECT_EQ(size & (size - 1), 0) << size;
  }
}

TEST(AttentionPlan, ASequencesItemsDoNotDependOnItsNeighbours) {
  const std::vector<BatchSequence> all = {
      {0, 1, 40000, {}}, {1, 9, 100, {}}, {10, 1, 0, {}}, {11, 1, 3000, {}}, {12, 300, 0, {}}};
  const AttentionProblem problem = problem_of(8, 2500);
  const AttentionPlan plan = plan_attention(problem, 2, 5000, 128, all);
  for (const BatchSequence& sequence : all) {
    const AttentionPlan alone = plan_attention(problem, 2, 5000, 128, {&sequence, 1});
    std::vector<std::tuple<int, int, int>> expected, got;
    for (const DecodeItem& item : alone.decode_items) {
      expected.emplace_back(item.split, item.begin, item.end);
    }
    for (const PrefillItem& item : alone.prefill_items) {
      expected.emplace_back(item.query_begin, item.begin, item.end);
    }
    for (const DecodeItem& item : plan.decode_items) {
      if (item.row == sequence.first_row) got.emplace_back(item.split, item.begin, item.end);
    }
    for (const PrefillItem& item : plan.prefill_items) {
      if (item.first_row == sequence.first_row) {
        got.emplace_back(item.query_begin, item.begin, item.end);
      }
    }
    EXPECT_THAT(got, testing::UnorderedElementsAreArray(expected)) << sequence.first_row;
  }
}

TEST(AttentionPlan, SplitsHavePartialsOfTheirOwnAndLongOnesComeFirst) {
  std::vector<BatchSequence> sequences;
  int64_t row = 0, num_tokens = 0;
  for (const int64_t position : kPositions) {
    sequences.push_back({row++, 1, position, {}});
    num_tokens += position + 1;
  }
  const AttentionPlan plan = plan_attention(problem_of(4), 4, 1 << 20, 64, sequences);
  std::map<int64_t, int> partials;
  for (size_t i = 0; i < plan.decode_items.size(); ++i) {
    const DecodeItem& item = plan.decode_items[i];
    EXPECT_EQ(item.table_begin, item.sequence * (1 << 20));
    EXPECT_LT(item.split, item.num_splits);
    if (item.num_splits > 1) ++partials[item.first_partial + item.split];
    if (i > 0) {
      const DecodeItem& before = plan.decode_items[i - 1];
      EXPECT_GE(before.end - before.begin, item.end - item.begin);
    }
  }
  EXPECT_EQ(partials.size(), static_cast<size_t>(plan.num_partials));
  EXPECT_EQ(partials.rbegin()->first, plan.num_partials - 1);
  EXPECT_LE(static_cast<int64_t>(plan.decode_items.size()), num_decode_items_max(row, num_tokens));
}

TEST(AttentionPlan, NoBatchHasMoreItemsThanTheBound) {
  for (const int64_t window : {0, 700, 1025, 2049, 30000}) {
    for (int64_t position = 0; position < 70000; position += 61) {
      const auto bounds = split_boundaries(problem_of(1, window), position);
      EXPECT_LE(static_cast<int64_t>(bounds.size()) - 1, num_decode_items_max(1, position + 1))
          << position << " " << window;
    }
  }
}

TEST(AttentionPlan, PrefillItemsCoverEveryQueryRowAndWhatItSees) {
  constexpr int64_t kRowsPerItem = 64;
  for (const int64_t group_size : {1, 3, 8}) {
    for (const int64_t window : {0, 1, 50, 5000}) {
      for (const int64_t num_new_tokens : {2, 63, 64, 65, 100, 1000}) {
        for (const int64_t num_past_tokens : {0, 70, 4000}) {
          const BatchSequence sequence{5, num_new_tokens, num_past_tokens, {}};
          const AttentionPlan plan = plan_attention(problem_of(2 * group_size, window), 2, 999,
                                                    kRowsPerItem, {&sequence, 1});
          EXPECT_TRUE(plan.decode_items.empty());
          const int64_t num_rows = group_size * num_new_tokens;
          std::set<int> begins;
          for (const PrefillItem& item : plan.prefill_items) {
            EXPECT_TRUE(begins.insert(item.query_begin).second);
            EXPECT_EQ(item.query_begin % kRowsPerItem, 0);
            ASSERT_LT(item.query_begin, num_rows);
            // The tokens of the item's first and last query row.
            const int64_t first = num_past_tokens + item.query_begin / group_size;
            const int64_t last_row = std::min(item.query_begin + kRowsPerItem, num_rows) - 1;
            EXPECT_EQ(item.begin, window == 0 ? 0 : std::max<int64_t>(0, first - window + 1));
            EXPECT_EQ(item.end, num_past_tokens + last_row / group_size + 1);
            EXPECT_EQ(item.first_row, 5);
            EXPECT_EQ(item.num_past_tokens, num_past_tokens);
          }
          EXPECT_EQ(std::ssize(begins), (num_rows + kRowsPerItem - 1) / kRowsPerItem);
        }
      }
    }
  }
}

TEST(AttentionPlan, QueryHeadsOfAKvHeadAreInAsFewUnitsAsTheKernelAllows) {
  EXPECT_EQ(num_decode_units(32, 8, 128), 8);
  EXPECT_EQ(num_decode_units(64, 8, 128), 8);
  EXPECT_EQ(num_decode_units(64, 4, 128), 4);
  EXPECT_EQ(num_decode_units(40, 2, 96), 4);
  EXPECT_EQ(num_decode_units(40, 2, 64), 6);
  EXPECT_EQ(num_decode_units(9, 1, 256), 2);
}

TEST(AttentionPlan, AnEmptyBatchHasNoWork) {
  const AttentionPlan plan = plan_attention(problem_of(4), 4, 10, 64, {});
  EXPECT_TRUE(plan.decode_items.empty());
  EXPECT_TRUE(plan.prefill_items.empty());
}

TEST(AttentionPlan, CopiesAreAsWideAsRowsAndPagesAllow) {
  EXPECT_EQ(copy_bytes({KvDType::kF16, 8, 128, 16}), 16);
  EXPECT_EQ(copy_bytes({KvDType::kInt4, 8, 128, 16}), 16);
  EXPECT_EQ(copy_bytes({KvDType::kInt4, 3, 80, 16}), 8);  // rows of 40 bytes
  EXPECT_EQ(copy_bytes({KvDType::kInt8, 1, 32, 3}), 8);   // pages of 216 bytes
  EXPECT_EQ(copy_bytes({KvDType::kInt4, 1, 8, 5}), 4);
}

TEST(AttentionPlan, SaysWhyTheKernelsCannot) {
  const KvPageLayout llama{KvDType::kF16, 8, 128, 16};
  EXPECT_EQ(why_not_cuda_attention(problem_of(32), llama, DType::kBf16), "");
  KvPageLayout layout = llama;
  layout.dtype = KvDType::kF32;
  EXPECT_THAT(why_not_cuda_attention(problem_of(32), layout, DType::kF16), HasSubstr("f32"));
  layout = llama;
  layout.head_dim = 17;
  EXPECT_EQ(why_not_cuda_attention(problem_of(32), layout, DType::kF16),
            "head_dim 17 is not a multiple of 8");
  layout.head_dim = 264;
  EXPECT_EQ(why_not_cuda_attention(problem_of(32), layout, DType::kF16),
            "head_dim 264 is above 256");
  EXPECT_THAT(why_not_cuda_attention(problem_of(32), llama, DType::kF32),
              HasSubstr("activations of f32"));
  EXPECT_EQ(why_not_cuda_attention(problem_of(30), llama, DType::kF16),
            "30 heads do not divide among 8 kv heads");
}

TEST(ChooseDecodeSplit, CutsFewSequencesFineAndManyNotAtAll) {
  const AttentionProblem problem = problem_of(32);
  const auto chosen = [&](int64_t num_sequences, int64_t num_tokens, int64_t position_bytes = 512) {
    const std::vector<BatchSequence> sequences(
        static_cast<size_t>(num_sequences),
        {.num_new_tokens = 1, .num_past_tokens = num_tokens - 1, .page_table = {}});
    return choose_decode_split(problem, 8, position_bytes, 264, sequences).tokens;
  };
  EXPECT_EQ(chosen(1, 1024), 64);
  EXPECT_EQ(chosen(1, 32768), 1024);
  EXPECT_GE(chosen(64, 1040), 1040);
  EXPECT_GE(chosen(32, 4096), 4096);
  EXPECT_GE(chosen(64, 8192, 136), 8192);
  EXPECT_EQ(chosen(1, 1), 64);
  EXPECT_GT(chosen(1, 1024, 136), chosen(1, 1024));  // fewer bytes a position, longer splits
}

TEST(ChooseDecodeSplit, WarpsTakeItemsOfTheirOwnWhereThereAreMany) {
  const AttentionProblem problem = problem_of(32);
  std::vector<BatchSequence> sequences(
      1024, {.num_new_tokens = 1, .num_past_tokens = 1023, .page_table = {}});
  const auto chosen = [&] { return choose_decode_split(problem, 8, 136, 264, sequences); };
  EXPECT_TRUE(chosen().is_warp_per_item);
  EXPECT_GE(chosen().tokens, 1024);
  sequences.front().num_past_tokens = 99'999;  // no warp reads it alone
  EXPECT_LT(chosen().tokens, 50'000);
  sequences.resize(64);
  EXPECT_FALSE(chosen().is_warp_per_item);
  // A few long sequences keep all CTAs busy.
  sequences.assign(128, {.num_new_tokens = 1, .num_past_tokens = 32'767, .page_table = {}});
  EXPECT_FALSE(chosen().is_warp_per_item);
}

TEST(ChooseDecodeSplit, MakesNoMoreItemsThanMemoryHolds) {
  for (const int64_t num_heads : {1, 32}) {
    for (const int64_t num_sequences : {1, 3, 20, 300}) {
      for (const int64_t num_tokens : {1, 63, 65, 1000, 5000, 100'000}) {
        AttentionProblem problem = problem_of(num_heads);
        problem.window = num_tokens % 2 == 0 ? 0 : 4095;
        const std::vector<BatchSequence> sequences(
            static_cast<size_t>(num_sequences),
            {.num_new_tokens = 1, .num_past_tokens = num_tokens - 1, .page_table = {}});
        const int64_t step = choose_decode_split(problem, num_heads, 136, 264, sequences).tokens;
        const AttentionPlan plan = plan_attention(problem, num_heads, 1000, 64, sequences, step);
        EXPECT_LE(static_cast<int64_t>(plan.decode_items.size()),
                  num_decode_items_max(num_sequences, num_sequences * num_tokens))
            << num_sequences << " x " << num_tokens;
      }
    }
  }
}

TEST(SplitBoundaries, HaveNoShortRestWhereTheBatchDecides) {
  for (const int64_t window : {0, 100, 1024}) {
    for (const int64_t chosen : {64, 512, 4096}) {
      for (const int64_t position : {0, 30, 63, 64, 511, 512, 767, 1039, 1279, 9000, 9215}) {
        const auto bounds = split_boundaries(problem_of(8, window), position, chosen);
        const int64_t begin = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
        ASSERT_GE(bounds.size(), 2U);
        EXPECT_EQ(bounds.front(), begin);
        EXPECT_EQ(bounds.back(), position + 1);
        for (size_t i = 1; i + 1 < bounds.size(); ++i) {
          EXPECT_EQ(bounds[i] % chosen, 0) << position << " " << chosen;
          EXPECT_GT(bounds[i], bounds[i - 1]) << position << " " << chosen;
        }
        const int64_t last = bounds.back() - bounds[bounds.size() - 2];
        EXPECT_TRUE(bounds.size() == 2 || last >= chosen / 2) << position << " " << chosen;
      }
    }
  }
}

}  // namespace
}  // namespace halley
