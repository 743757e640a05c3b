#include "halley/models/parallel/rank_messages.h"

#include <vector>

#include <gtest/gtest.h>

namespace halley {
namespace {

TEST(RankMessages, KeepAStep) {
  const std::vector<int32_t> token_ids = {5, 6, 7, 8}, logit_rows = {2, 3};
  const std::vector<int32_t> pages = {9, 4}, more_pages = {1, 2, 3};
  const std::vector<BatchSequence> sequences = {
      {.first_row = 0, .num_new_tokens = 3, .num_past_tokens = 20, .page_table = pages},
      {.first_row = 3, .num_new_tokens = 1, .num_past_tokens = 40, .page_table = more_pages}};
  const std::vector<RankLayer> layers = {
      {.layout = {.dtype = KvDType::kInt8, .num_kv_heads = 3, .head_dim = 64, .page_tokens = 4},
       .memory = 7,
       .offset = 4096,
       .num_pages = 11}};
  const ForwardBatch batch = {
      .token_ids = token_ids, .sequences = sequences, .logit_rows = logit_rows};

  const RankStep step = read_step(write_step(batch, Precision::kLow, layers));
  EXPECT_EQ(step.layers, layers);
  EXPECT_EQ(step.batch().precision, Precision::kLow);
  EXPECT_EQ(step.token_ids, token_ids);
  EXPECT_EQ(step.logit_rows, logit_rows);
  ASSERT_EQ(step.batch().sequences.size(), sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    const BatchSequence& sequence = step.batch().sequences[i];
    EXPECT_EQ(sequence.first_row, sequences[i].first_row);
    EXPECT_EQ(sequence.num_new_tokens, sequences[i].num_new_tokens);
    EXPECT_EQ(sequence.num_past_tokens, sequences[i].num_past_tokens);
    EXPECT_TRUE(std::equal(sequence.page_table.begin(), sequence.page_table.end(),
                           sequences[i].page_table.begin(), sequences[i].page_table.end()));
  }
}

TEST(RankMessages, KeepAnEmptyStep) {
  const RankStep step = read_step(write_step({}, Precision::kFull, {}));
  EXPECT_TRUE(step.layers.empty());
  EXPECT_TRUE(step.batch().token_ids.empty());
  EXPECT_TRUE(step.batch().sequences.empty());
  EXPECT_EQ(step.batch().precision, Precision::kFull);
}

/// Ranks run the same program, so that this is a bug of ours.
TEST(RankMessagesDeathTest, EndTheProcessWhereTheyAreCut) {
  std::vector<std::byte> bytes = write_step({}, Precision::kFull, {});
  bytes.pop_back();
  EXPECT_DEATH(read_step(bytes), "");
}

}  // namespace
}  // namespace halley
