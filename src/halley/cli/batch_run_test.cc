#include "halley/cli/batch_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley::cli {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::Lt;
using testing::SizeIs;

TEST(MakeBatch, HasWhatIsAskedForAndNoMore) {
  const std::vector<GenerateRequest> requests = make_batch(3, 5, 7, 11);
  ASSERT_THAT(requests, SizeIs(3));
  for (const GenerateRequest& request : requests) {
    EXPECT_THAT(request.prompt_ids, SizeIs(5));
    EXPECT_THAT(request.prompt_ids, Each(AllOf(Ge(0), Lt(11))));
    EXPECT_EQ(request.sampling.max_tokens, 7);
    EXPECT_EQ(request.sampling.temperature, 0);
    EXPECT_TRUE(request.sampling.ignore_eos);
  }
  EXPECT_THAT(make_batch(0, 5, 7, 11), SizeIs(0));
}

TEST(MakeBatch, IsTheSameInEveryRunWithPromptsOfTheirOwn) {
  const auto first = make_batch(2, 20, 1, 1000), second = make_batch(2, 20, 1, 1000);
  EXPECT_EQ(first[0].prompt_ids, second[0].prompt_ids);
  EXPECT_EQ(first[1].prompt_ids, second[1].prompt_ids);
  EXPECT_NE(first[0].prompt_ids, first[1].prompt_ids);
}

TEST(RunBatch, CountsTheStepsBehindTheLastFirstToken) {
  const auto engine = fake_engine(fake_model());
  const BatchTimes times = run_batch(*engine, make_batch(4, 6, 5, fake_vocab_size()));
  EXPECT_THAT(times.decode_steps, SizeIs(4));
  EXPECT_GE(times.latency, times.first_token);
  EXPECT_GT(times.output_token, 0);
  // One token each: nothing is decoded.
  const BatchTimes one = run_batch(*engine, make_batch(2, 6, 1, fake_vocab_size()));
  EXPECT_EQ(one.output_token, 0);
  EXPECT_THAT(one.decode_steps, SizeIs(0));
}

TEST(RunBatch, SaysWhatTheEngineRejects) {
  const auto engine = fake_engine(fake_model(hashed_logits, {.max_positions = 16}));
  EXPECT_THROW(run_batch(*engine, make_batch(1, 20, 5, fake_vocab_size())), InputError);
}

TEST(Median, IsTheMiddleOrTheMeanOfBoth) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({9, 1, 2, 4}), 3);
}

}  // namespace
}  // namespace halley::cli
