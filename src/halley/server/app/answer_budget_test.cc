#include "halley/server/app/answer_budget.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/openai/api_error.h"
#include "halley/server/openai/request_parser.h"

namespace halley {
namespace {

using testing::HasSubstr;

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();

ApiRequest request_of(const std::string& members) {
  return parse_request("{" + members + "}", ApiEndpoint::kCompletions,
                       {.sampling = {}, .vocab_size = 100});
}

std::optional<AnswerBytes> bytes_of(const std::string& members,
                                    const std::vector<int64_t>& max_tokens,
                                    int64_t num_prompt_tokens = 10) {
  const std::vector<int64_t> prompts(max_tokens.size(), num_prompt_tokens);
  return most_answer_bytes(request_of(members), {.token_text_bytes = 16,
                                                 .stream_events_bytes_max = 10'000,
                                                 .num_prompt_tokens = prompts,
                                                 .max_tokens = max_tokens});
}

TEST(AnswerBudget, AReplyHasRoomForItsCopiesOfTheText) {
  for (const std::string members : {R"("prompt": "a")", R"("prompt": "a", "stream": true)"}) {
    const ApiRequest request = request_of(members);
    const std::vector<int64_t> prompts = {0}, lengths = {1000};
    AnswerSizes sizes = {.token_text_bytes = 16,
                         .stream_events_bytes_max = 10'000,
                         .num_prompt_tokens = prompts,
                         .max_tokens = lengths};
    const int64_t plain = most_answer_bytes(request, sizes)->all;
    sizes.num_text_copies = 3;
    EXPECT_EQ(most_answer_bytes(request, sizes)->all - plain, 3 * 1000 * 16) << members;
  }
}

TEST(AnswerBudget, AWholeAnswerHasRoomForTextsAndLogProbabilities) {
  const int64_t none = bytes_of(R"("prompt": "a")", {0}, 0)->all;
  const int64_t text = bytes_of(R"("prompt": "a")", {1000}, 0)->all;
  // Twice: once more while the calls of one choice are read.
  EXPECT_EQ(text - none, 2 * 1000 * 16);
  const int64_t logprobs = bytes_of(R"("prompt": "a", "logprobs": 20)", {1000}, 0)->all;
  EXPECT_GE(logprobs - text, 1000 * 21 * 8);
  EXPECT_LE(logprobs - text, 1000 * 21 * 9);
  const int64_t echo = bytes_of(R"("prompt": "a", "logprobs": 20, "echo": true)", {1000}, 500)->all;
  EXPECT_GE(echo - logprobs, 500 * 21 * 8);
}

TEST(AnswerBudget, CountsEverySequence) {
  const int64_t one = bytes_of(R"("prompt": "a", "logprobs": 5)", {1000})->all;
  const int64_t two = bytes_of(R"("prompt": "a", "n": 2, "logprobs": 5)", {1000})->all;
  EXPECT_GE(two - one, 1000 * 6 * 8);
  EXPECT_EQ(bytes_of(R"("prompt": ["a", "b"], "n": 4, "logprobs": 5)", {1000, 1000})->all,
            one + 7 * (two - one));
}

TEST(AnswerBudget, AStreamHasRoomForWhatMayWait) {
  const auto few = bytes_of(R"("prompt": "a", "stream": true)", {10});
  const auto many = bytes_of(R"("prompt": "a", "stream": true)", {1'000'000});
  const auto endless = bytes_of(R"("prompt": "a", "stream": true)", {kMany});
  EXPECT_LT(few->events, 10'000);
  EXPECT_EQ(many->events, 10'000);
  EXPECT_GE(many->all, many->events + (1 << 20));  // and what the client has not read
  EXPECT_EQ(endless->all, many->all);
  EXPECT_EQ(bytes_of(R"("prompt": "a", "stream": true, "n": 3)", {1'000'000})->events, 30'000);
  const auto echo = bytes_of(R"("prompt": "a", "stream": true, "echo": true, "logprobs": 5)", {1},
                             /*num_prompt_tokens=*/100'000);
  EXPECT_GE(echo->events, 100'000 * 2 * 5 * 8);
}

TEST(AnswerBudget, ANumberThatIsTooLargeIsNone) {
  EXPECT_FALSE(bytes_of(R"("prompt": "a")", {kMany}));
  EXPECT_FALSE(bytes_of(R"("prompt": "a", "n": 128)", {kMany / 16 / 100}));
  EXPECT_FALSE(bytes_of(R"("prompt": "a", "stream": true, "echo": true, "logprobs": 5)", {1},
                        /*num_prompt_tokens=*/kMany / 8));
}

TEST(AnswerBudget, CountsAnEventThatWaitsAsTheReservationDoes) {
  TokenEvent event;
  event.token_id = 1;
  event.text = std::string(16, 'x');
  event.top_logprobs.resize(5);
  const auto bytes = bytes_of(R"("prompt": "a", "stream": true, "logprobs": 5)", {3});
  EXPECT_EQ(3 * waiting_bytes(event), bytes->events);
  event.prompt_logprobs.resize(2);
  EXPECT_GT(waiting_bytes(event), bytes->events / 3);
}

std::string error_of(const std::shared_ptr<ByteBudget>& budget, const AnswerBytes& bytes,
                     const std::string& members, int& status) {
  try {
    const ByteReservation reservation = reserve_answer(budget, bytes, request_of(members));
  } catch (const ApiError& error) {
    status = error.details().status;
    return error.what();
  }
  return "no error";
}

TEST(AnswerBudget, RejectsWhatExceedsAllOfItAndWhatFindsNoRoom) {
  const auto budget = make_answer_budget(1'000'000);
  int status = 0;
  EXPECT_EQ(error_of(budget, {.events = 0, .all = 2'000'000}, R"("prompt": "a", "n": 3)", status),
            "max_tokens: expected an answer that needs at most 1.0 MB of memory until it is sent, "
            "got 3 choices that may need 2.0 MB. Ask for fewer choices (n, prompts), tokens or log "
            "probabilities, or set stream.");
  EXPECT_EQ(status, 400);
  EXPECT_THAT(
      error_of(budget, {.events = 0, .all = 2'000'000}, R"("prompt": "a", "stream": true)", status),
      HasSubstr("or log probabilities."));
  EXPECT_EQ(budget->stats().num_rejected, 0u);
  const ApiRequest request = request_of(R"("prompt": "a")");
  {
    const ByteReservation first =
        reserve_answer(budget, AnswerBytes{.events = 0, .all = 600'000}, request);
    EXPECT_EQ(budget->stats().num_taken_bytes, 600'000u);
    EXPECT_THAT(error_of(budget, {.events = 0, .all = 500'000}, R"("prompt": "a")", status),
                HasSubstr("Try again later."));
    EXPECT_EQ(status, 503);
    EXPECT_EQ(budget->stats().num_rejected, 1u);
  }
  EXPECT_EQ(budget->stats().num_taken_bytes, 0u);
  EXPECT_EQ(error_of(budget, {.events = 0, .all = 500'000}, R"("prompt": "a")", status),
            "no error");
}

TEST(AnswerBudget, IsAQuarterOfTheAvailableMemoryByDefault) {
  EXPECT_GT(make_answer_budget(0)->stats().num_bytes_max, size_t{1} << 20);
}

}  // namespace
}  // namespace halley
