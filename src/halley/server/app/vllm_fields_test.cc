// Tests of members and routes that vLLM and llama.cpp's server have, over the routes.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kChats = "/v1/chat/completions";
constexpr const char* kHiMessages = R"("messages": [{"role": "user", "content": "hi"}])";

std::vector<int32_t> ids_of(const std::string& text) { return tokenizer()->encode(text, false); }

std::string body(const std::string& members) {
  return R"({"temperature": 0, "max_tokens": 6, "ignore_eos": true, )" + members + "}";
}

TEST(ReturnTokenIds, GivesThePromptsAndTheOutputs) {
  App app;
  const OrderedJson plain = app.post_json(kCompletions, body(R"("prompt": "ab")"));
  EXPECT_FALSE(plain["choices"][0].contains("token_ids"));
  const OrderedJson answer =
      app.post_json(kCompletions, body(R"("prompt": ["ab", "c"], "return_token_ids": true)"));
  EXPECT_EQ(answer["choices"][0]["prompt_token_ids"], ids_of("ab"));
  EXPECT_EQ(answer["choices"][1]["prompt_token_ids"], ids_of("c"));
  const auto ids = answer["choices"][0]["token_ids"].get<std::vector<int32_t>>();
  EXPECT_EQ(ids.size(), 6);
  EXPECT_EQ(tokenizer()->decode(ids, true), answer["choices"][0]["text"]);
  const OrderedJson chat = app.post_json(
      kChats, body(std::string(kHiMessages) + R"(, "return_token_ids": true, "n": 2)"));
  EXPECT_EQ(chat["prompt_token_ids"], ids_of("user hi\nassistant "));
  EXPECT_EQ(chat["choices"][1]["token_ids"].size(), 6);
}

TEST(ReturnTokenIds, AStreamHasThemInItsChunks) {
  for (const bool is_chat : {false, true}) {
    App app;
    const std::string path = is_chat ? kChats : kCompletions;
    const std::string members =
        std::string(is_chat ? kHiMessages : R"("prompt": "ab")") + R"(, "return_token_ids": true)";
    const OrderedJson whole = app.post_json(path, body(members));
    std::vector<int32_t> ids;
    int num_prompts = 0;
    const std::string stream = body(members + R"(, "stream": true)");
    for (const OrderedJson& chunk : chunks_of(app.post(path, stream))) {
      const OrderedJson& choice = chunk["choices"][0];
      for (const OrderedJson& id : choice.value("token_ids", OrderedJson::array())) {
        ids.push_back(id.get<int32_t>());
      }
      const OrderedJson& holder = is_chat ? chunk : choice;
      if (!holder.contains("prompt_token_ids")) continue;
      ++num_prompts;
      EXPECT_EQ(holder["prompt_token_ids"],
                (is_chat ? whole : whole["choices"][0])["prompt_token_ids"]);
    }
    EXPECT_EQ(whole["choices"][0]["token_ids"], ids);
    EXPECT_EQ(num_prompts, 1);
  }
}

TEST(PromptLogprobs, AreThoseThatEchoHas) {
  App app;
  const OrderedJson echo = app.post_json(
      kCompletions, body(R"("prompt": "abc", "echo": true, "logprobs": 2)"))["choices"][0];
  const OrderedJson choices = app.post_json(
      kCompletions, body(R"("prompt": "abc", "prompt_logprobs": 2, "n": 2)"))["choices"];
  const OrderedJson& scored = choices[0]["prompt_logprobs"];
  ASSERT_EQ(scored.size(), 3);
  EXPECT_TRUE(scored[0].is_null());
  EXPECT_TRUE(choices[0]["logprobs"].is_null());
  EXPECT_FALSE(choices[1].contains("prompt_logprobs"));  // once for each prompt
  const std::vector<int32_t> ids = ids_of("abc");
  for (size_t i = 1; i < 3; ++i) {
    const OrderedJson& entry = scored[i][std::to_string(ids[i])];
    EXPECT_EQ(entry["logprob"], echo["logprobs"]["token_logprobs"][i]);
    EXPECT_EQ(entry["decoded_token"], echo["logprobs"]["tokens"][i]);
    std::vector<OrderedJson> ranks;
    for (const auto& [id, alternative] : scored[i].items()) {
      if (!alternative["rank"].is_null()) ranks.push_back(alternative["rank"]);
    }
    EXPECT_EQ(ranks.size(), 2);
  }
}

TEST(PromptLogprobs, OfAChatStandBehindItsChoices) {
  App app;
  const OrderedJson chat =
      app.post_json(kChats, body(std::string(kHiMessages) + R"(, "prompt_logprobs": 0)"));
  EXPECT_EQ(chat["prompt_logprobs"].size(), ids_of("user hi\nassistant ").size());
  EXPECT_EQ(chat["prompt_logprobs"][1].size(), 1);
}

TEST(TruncatePromptTokens, KeepsTheLastTokensOfEachPrompt) {
  AppSetup setup;
  setup.engine.max_model_len = 32;
  App app(std::move(setup));
  const auto prompt_of = [&](const std::string& members) {
    return app.post_json(
        kCompletions,
        body(members + R"(, "return_token_ids": true)"))["choices"][0]["prompt_token_ids"];
  };
  EXPECT_EQ(prompt_of(R"("prompt": "abcde", "truncate_prompt_tokens": 2)"), ids_of("de"));
  EXPECT_EQ(prompt_of(R"("prompt": "abcde", "truncate_prompt_tokens": 9)"), ids_of("abcde"));
  EXPECT_EQ(prompt_of(R"("prompt": [5, 6, 7], "truncate_prompt_tokens": 1)"),
            std::vector<int32_t>{7});
  const std::string long_prompt = R"("prompt": ")" + std::string(40, 'a') + "\"";
  EXPECT_EQ(prompt_of(long_prompt + R"(, "truncate_prompt_tokens": -1)").size(), 32 - 6);
  EXPECT_EQ(app.post(kCompletions, body(long_prompt)).status, 400);
}

TEST(ServerState, TellsWhatTheServerIs) {
  AppSetup setup;
  setup.engine.max_num_seqs = 3;
  setup.engine.max_model_len = 64;
  App app(std::move(setup));
  const auto get = [&](const char* path) { return OrderedJson::parse(app.get(path).body); };
  const OrderedJson props = get("/props");
  EXPECT_EQ(props["total_slots"], 3);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 64);
  EXPECT_EQ(props["default_generation_settings"]["params"]["temperature"], 1);
  EXPECT_EQ(props["chat_template"], kTemplate);
  EXPECT_EQ(get("/slots").size(), 3);
  EXPECT_EQ(get("/slots")[0]["is_processing"], false);
  EXPECT_EQ(get("/load")["server_load"], 0);
  const OrderedJson info = get("/server_info");
  EXPECT_EQ(info["max_num_seqs"], 3);
  EXPECT_EQ(info["tool_call_parser"], "hermes");
}

TEST(ServerState, CountsWhatRuns) {
  Signal is_running, may_go_on;
  AppSetup setup;
  setup.engine.max_num_seqs = 1;
  setup.on_forward = [&](const ForwardBatch&) {
    is_running.set();
    may_go_on.wait();
  };
  App app(std::move(setup));
  const auto first = app.start("POST", kCompletions, R"({"prompt": "a", "max_tokens": 2})");
  is_running.wait();
  // The thread that prepared the request may still count it for a moment after the engine does.
  int64_t load = 0;
  do {
    load = OrderedJson::parse(app.get("/load").body)["server_load"].get<int64_t>();
    ASSERT_GE(load, 1);
  } while (load != 1);
  EXPECT_EQ(OrderedJson::parse(app.get("/slots").body)[0]["is_processing"], true);
  may_go_on.set();
  EXPECT_EQ(first->wait().status, 200);
}

TEST(ApplyTemplate, GivesTheTextThatTheModelContinues) {
  App app;
  EXPECT_EQ(app.post_json("/apply-template", std::string("{") + kHiMessages + "}")["prompt"],
            "user hi\nassistant ");
  EXPECT_EQ(app.post("/apply-template", R"({"prompt": "a"})").status, 400);
}

}  // namespace
}  // namespace halley
