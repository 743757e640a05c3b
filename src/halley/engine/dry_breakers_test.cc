// Tests of DRY's breakers, and of DRY and XTC in the engine.
#include "halley/engine/dry_breakers.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

using Ids = std::vector<int32_t>;

TEST(DryBreakerCache, FindsTheTokensThatSpellAText) {
  const auto tokenizer = fake_tokenizer();
  DryBreakerCache cache(tokenizer.get());
  const auto id = [&](const char* token) { return *tokenizer->id_of(token); };
  const auto breakers = cache.get({"open"});
  EXPECT_THAT(breakers->tails_of(id("o")), ElementsAre(ElementsAre(id("p"), id("e"), id("n"))));
  EXPECT_THAT(breakers->tails_of(id("op")), ElementsAre(ElementsAre(id("e"), id("n"))));
  EXPECT_THAT(breakers->tails_of(id("stop")), ElementsAre(ElementsAre(id("e"), id("n"))));
  EXPECT_EQ(breakers->num_heads(), 3u);
  // Tokens that have the text are breakers themselves.
  const auto top = cache.get({"to", "<|pad|>"});
  EXPECT_THAT(top->tails_of(id("stop")), ElementsAre(IsEmpty()));
  EXPECT_THAT(top->tails_of(id("st")), ElementsAre(ElementsAre(id("o"))));
  EXPECT_TRUE(top->is_breaker(id("<|pad|>")));
  EXPECT_EQ(cache.get({"open"}), breakers) << "the same texts again";
  EXPECT_EQ(cache.get({}), nullptr);
}

TEST(DryBreakerCache, NeedsATokenizerForTexts) {
  DryBreakerCache cache(nullptr);
  EXPECT_EQ(cache.get({}), nullptr);
  EXPECT_THAT([&] { cache.get({"\n"}); },
              ThrowsMessage<InputError>(HasSubstr("dry_sequence_breakers: expected no texts")));
}

// However a real vocabulary cuts a text, one of its tokens begins each breaker that it has.
TEST(DryBreakerCache, FindsTheBreakersOfEncodedTexts) {
  const auto tokenizer =
      load_tokenizer(std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata/tokenizers/gpt2");
  DryBreakerCache cache(tokenizer.get());
  for (const std::string breaker : {"\n", ":", "\"", "*", "###", "<|endoftext|>", "é"}) {
    const auto breakers = cache.get({breaker});
    const auto has_breaker = [&](const std::string& text) {
      const Ids ids = tokenizer->encode(text, false);
      for (size_t i = 0; i < ids.size(); ++i) {
        for (const Ids& tail : breakers->tails_of(ids[i])) {
          if (tail.size() < ids.size() - i &&
              std::equal(tail.begin(), tail.end(), ids.begin() + static_cast<ptrdiff_t>(i) + 1)) {
            return true;
          }
        }
      }
      return false;
    };
    for (const std::string before : {"", "He said", "He said ", "x.\n\n", "a,"}) {
      const std::string text = before + breaker + "Then";
      EXPECT_TRUE(has_breaker(text)) << text;
    }
    EXPECT_FALSE(has_breaker("A text without any of them")) << breaker;
  }
}

class DryAndXtc : public OnFakeModels {};
INSTANTIATE_TEST_SUITE_P(Models, DryAndXtc, fake_devices(), name_of_fake_device);

GenerateRequest dry_request(uint64_t seed) {
  GenerateRequest request = greedy_request({20, 21, 22, 20, 21}, 40);
  request.sampling.temperature = 0.5;
  request.sampling.seed = seed;
  request.sampling.top_k = 3;  // so that texts repeat
  request.sampling.dry_multiplier = 2;
  request.sampling.dry_allowed_length = 1;
  request.sampling.dry_sequence_breakers = {};
  request.sampling.xtc_probability = 0.5;
  request.sampling.xtc_threshold = 0.2;
  return request;
}

// On a device that chooses tokens itself they are rejected, never ignored.
TEST_P(DryAndXtc, GiveTheTokensOfTheSamplerAlone) {
  EngineConfig config;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 8;
  config.page_tokens = 4;
  config.max_model_len = 64;
  config.kv_bytes = 24 * 4 * 2 * 2 * 4;  // few pages: requests are preempted and start again
  const auto engine = fake_engine(fake_model(), config);
  std::vector<GenerateRequest> requests;
  for (uint64_t seed = 0; seed < 8; ++seed) requests.push_back(dry_request(seed));
  if (!is_on_host()) {
    const auto message_of = [&](const GenerateRequest& request) {
      const SubmitResult result = engine->submit(request, 1, [](const TokenEvent&) {});
      EXPECT_EQ(result.status, Submit::kInvalid);
      return result.message;
    };
    EXPECT_THAT(message_of(requests[0]), HasSubstr("dry_multiplier: expected 0, since the model's "
                                                   "device chooses tokens"));
    requests[0].sampling.dry_multiplier = 0;
    EXPECT_THAT(message_of(requests[0]), HasSubstr("xtc_probability: expected 0"));
    return;
  }
  const std::vector<GenerateResult> results = generate_all(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    Ids ids;
    for (const int32_t id : results[i].token_ids) ids.push_back(id);
    EXPECT_EQ(ids, tokens_alone(requests[i], fake_vocab_size())) << i;
    requests[i].sampling.dry_multiplier = 0;
    requests[i].sampling.xtc_probability = 0;
  }
  EXPECT_GT(engine->stats().num_preemptions, 0);
}

TEST(Dry, StopsAModelThatRepeatsItself) {
  // A model that writes "abcabc..." until DRY has made it something else.
  const auto repeating = [](std::span<const int32_t> tokens, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[18 + tokens.size() % 3] = 4;
    logits[30] = 3.5;
  };
  const auto text_with = [&](double multiplier, std::vector<std::string> breakers) {
    const auto engine = fake_engine(fake_model(repeating));
    GenerateRequest request = greedy_request({18}, 12);
    request.sampling.dry_multiplier = multiplier;
    request.sampling.dry_allowed_length = 3;
    request.sampling.dry_sequence_breakers = std::move(breakers);
    return generate_one(*engine, std::move(request)).text;
  };
  EXPECT_EQ(text_with(0, {}), "bcabcabcabca");
  EXPECT_EQ(text_with(1, {}), "bcabcmbcamca");
  // No repetition is longer than what stands behind the last "b": two tokens.
  EXPECT_EQ(text_with(1, {"b"}), "bcabcabcabca");
}

}  // namespace
}  // namespace halley
