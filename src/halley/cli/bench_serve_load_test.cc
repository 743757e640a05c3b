#include "halley/cli/bench_serve_load.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

const std::string kModel = HALLEY_SOURCE_DIR "/models/demo-21m";

Json body_of(const ServeLoad& load, size_t index) {
  return parse_json(load.make_body(index), "a body");
}

TEST(ServeLoad, SendsItsTraffic) {
  const ServeLoad load({.traffic = {.num_prompts = 20, .input_len = 100, .output_len = 8}});
  EXPECT_EQ(load.traffic().arrivals.size(), 20U);
  EXPECT_EQ(body_of(load, 3).at("max_tokens"), 8);
}

TEST(ServeLoad, AsksForTheUsageInEveryEvent) {
  const ServeLoad load({.traffic = {.num_prompts = 1}, .has_continuous_usage = true});
  EXPECT_EQ(body_of(load, 0).at("stream_options").at("continuous_usage_stats"), true);
}

TEST(ServeLoad, BodiesDependOnTheSeedAndTheIndexAlone) {
  const ServeLoad load({.traffic = {.num_prompts = 10, .input_len = 40, .seed = 3}});
  const ServeLoad same(
      {.traffic = {.num_prompts = 5, .request_rate = 2, .input_len = 40, .seed = 3}});
  const ServeLoad other({.traffic = {.num_prompts = 10, .input_len = 40, .seed = 4}});
  EXPECT_EQ(load.make_body(4), same.make_body(4));
  EXPECT_EQ(load.make_body(4), load.make_body(4));
  EXPECT_NE(load.make_body(4), load.make_body(5));
  EXPECT_NE(load.make_body(4), other.make_body(4));
}

TEST(ServeLoad, AsksForWhatTheEndpointTakes) {
  const ServeLoad text(
      {.model = "m", .traffic = {.num_prompts = 1, .input_len = 5}, .temperature = 0.5});
  const Json completion = body_of(text, 0);
  EXPECT_TRUE(completion.at("prompt").is_string());
  EXPECT_EQ(std::ranges::count(completion.at("prompt").get<std::string>(), ' '), 5);
  EXPECT_EQ(completion.at("model"), "m");
  EXPECT_EQ(completion.at("temperature"), 0.5);
  EXPECT_EQ(completion.at("stream"), true);
  EXPECT_FALSE(completion.contains("ignore_eos"));
  const ServeLoad chat({.endpoint = "/v1/chat/completions",
                        .traffic = {.num_prompts = 1, .input_len = 5},
                        .ignore_eos = true});
  const Json message = body_of(chat, 0);
  EXPECT_FALSE(message.contains("prompt"));
  EXPECT_EQ(message.at("messages").at(0).at("role"), "user");
  EXPECT_EQ(message.at("ignore_eos"), true);
}

TEST(ServeLoad, TakesPlainTokensWhereItHasATokenizer) {
  const ServeLoad load({.traffic = {.num_prompts = 1, .input_len = 300}, .tokenizer = kModel});
  const auto tokenizer = load_tokenizer(kModel);
  const Json prompt = body_of(load, 0).at("prompt");
  ASSERT_EQ(prompt.size(), 300U);
  for (const Json& id : prompt) EXPECT_FALSE(tokenizer->is_special(id.get<int32_t>())) << id;
}

TEST(ServeLoad, SaysWhichFolderItCannotRead) {
  EXPECT_THROW(ServeLoad({.tokenizer = "no/such/folder"}), InputError);
}

}  // namespace
}  // namespace halley::cli
