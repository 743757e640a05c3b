#include "halley/sampling/cuda/slot_state.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/sampling/cuda/choice_record.h"
#include "halley/sampling/cuda/cuda_sampler.h"

namespace halley::cuda {
namespace {

using testing::StrEq;
using testing::ThrowsMessage;

TEST(SlotImage, SortsStopIdsAndKnowsTheLastToken) {
  const auto image = std::make_unique<SlotImage>();
  const TokenChoice choice = {.logit_bias = {{3, 0.5}, {8, -1}}, .stop_ids = {9, 2, 9}};
  write_slot_image(choice, std::vector<int32_t>{5, 6}, {}, *image);
  EXPECT_EQ(image->state.num_stop_ids, 2);
  EXPECT_EQ(image->stop_ids[0], 2);
  EXPECT_EQ(image->stop_ids[1], 9);
  EXPECT_EQ(image->state.num_biases, 2);
  EXPECT_EQ(image->bias_ids[1], 8);
  EXPECT_EQ(image->biases[1], -1);
  EXPECT_EQ(image->state.last_token, 6);
  write_slot_image(choice, std::vector<int32_t>{5, 6}, std::vector<int32_t>{7, 1}, *image);
  EXPECT_EQ(image->state.last_token, 1);
  EXPECT_EQ(image->state.num_output_tokens, 2);
}

TEST(SlotImage, RejectsListsThatAreTooLong) {
  const auto image = std::make_unique<SlotImage>();
  TokenChoice choice;
  for (int32_t id = 0; id < kSlotListMax + 1; ++id) choice.stop_ids.push_back(id);
  EXPECT_THAT([&] { write_slot_image(choice, {}, {}, *image); },
              ThrowsMessage<UnsupportedError>(
                  StrEq("sampling on the GPU: expected at most 1024 logit biases and as many stop "
                        "ids, got 0 and 1025. Give fewer, or run on the CPU.")));
  choice.stop_ids.assign(2000, 7);  // one
  EXPECT_NO_THROW(write_slot_image(choice, {}, {}, *image));
}

TEST(SlotImage, RejectsWhatTheHostAloneCanDo) {
  SlotImage image;
  TokenChoice choice;
  choice.params.dry_multiplier = 0.8;
  EXPECT_THROW(write_slot_image(choice, {}, {}, image), UnsupportedError);
  choice.params.dry_penalty_last_n = 0;  // no DRY
  EXPECT_NO_THROW(write_slot_image(choice, {}, {}, image));
  choice.params.xtc_probability = 0.5;
  EXPECT_THROW(write_slot_image(choice, {}, {}, image), UnsupportedError);
  choice.params.xtc_threshold = 0.6;  // no XTC
  EXPECT_NO_THROW(write_slot_image(choice, {}, {}, image));
}

TEST(ChoiceRecord, SaysWhatWasAskedFor) {
  ChoiceRecord record = {.token_id = 4, .status = 0, .num_top = -1};
  EXPECT_EQ(to_chosen_token(record).token.token_id, 4);
  EXPECT_FALSE(to_chosen_token(record).token.logprob.has_value());
  record.num_top = 2;
  record.logprob = -1.5f;
  record.top_ids = {7, 4};
  record.top_logprobs = {-0.5f, -1.5f};
  const SampledToken token = to_chosen_token(record).token;
  EXPECT_EQ(token.logprob->logprob, -1.5f);
  ASSERT_EQ(token.top_logprobs.size(), 2u);
  EXPECT_EQ(token.top_logprobs[0].token_id, 7);
  EXPECT_EQ(token.top_logprobs[1].logprob, -1.5f);
  record.status = static_cast<int32_t>(SampleStatus::kNothingLeft);
  EXPECT_EQ(to_chosen_token(record).status, SampleStatus::kNothingLeft);
}

TEST(CudaSampler, SaysHowMuchMemoryItTakes) {
  // A slot has counts and logits that wait, 4 bytes each for every token, and bits for its marks
  // and its mask.
  constexpr size_t kNumTokens = size_t{128256} * 256;
  const size_t bytes = CudaSampler::num_bytes(128256, 256);
  EXPECT_GT(bytes, kNumTokens * 8 + kNumTokens / 4);
  EXPECT_LT(bytes, kNumTokens * 8 + kNumTokens / 4 + size_t{256} * (20 << 10));
}

}  // namespace
}  // namespace halley::cuda
