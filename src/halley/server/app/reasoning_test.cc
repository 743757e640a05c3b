// Tests of reasoning from a request to its answer: its place, its budget and what waits for its
// end.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/server/app/output_constraint.h"
#include "halley/server/app/testing/app_fixture.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

using testing::HasSubstr;

constexpr const char* kPath = "/v1/chat/completions";
// Its generation prompt is "assistant ", and " <think>" behind it where the request says so.
constexpr const char* kThinkTemplate =
    "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if tools %}<tool_call>{% endif %}"
    "assistant {% if opens %}<think>{% endif %}{% if enable_thinking is defined and not "
    "enable_thinking %}<think></think>{% endif %}";

AppSetup thinker_of(const std::string& text, const std::string& prompt = "hi\nassistant ") {
  AppSetup setup = writer_of(text, tokenizer()->encode(prompt, false).size());
  setup.chat_template = kThinkTemplate;
  return setup;
}

std::string body(const std::string& members = "") {
  return R"({"messages": [{"role": "user", "content": "hi"}], "temperature": 0)" + members + "}";
}

size_t num_tokens(const std::string& text) { return tokenizer()->encode(text, false).size(); }

// "reasoning|content" of the answer, which a stream must have too.
std::string answer_of(App& app, const std::string& members, OrderedJson& answer) {
  answer = app.post_json(kPath, body(members));
  const OrderedJson& message = answer["choices"][0]["message"];
  std::string reasoning, content;
  if (message.contains("reasoning_content")) {
    reasoning = message["reasoning_content"].get<std::string>();
    EXPECT_EQ(message["reasoning"], reasoning);
  }
  if (message["content"].is_string()) content = message["content"].get<std::string>();
  std::string streamed_reasoning, streamed_content;
  OrderedJson usage;
  const std::string stream =
      members + R"(, "stream": true, "stream_options": {"include_usage": true})";
  for (const OrderedJson& chunk : chunks_of(app.post(kPath, body(stream)))) {
    if (chunk["choices"].empty()) {
      usage = chunk["usage"];
      continue;
    }
    const OrderedJson& delta = chunk["choices"][0]["delta"];
    if (delta.contains("content")) streamed_content += delta["content"].get<std::string>();
    if (!delta.contains("reasoning_content")) continue;
    EXPECT_EQ(delta["reasoning_content"], delta["reasoning"]);
    streamed_reasoning += delta["reasoning"].get<std::string>();
  }
  EXPECT_EQ(streamed_reasoning, reasoning);
  EXPECT_EQ(streamed_content, content);
  const char* details = "completion_tokens_details";
  EXPECT_EQ(usage.value(details, OrderedJson()), answer["usage"].value(details, OrderedJson()));
  return reasoning + "|" + content;
}

std::string answer_of(App& app, const std::string& members = "") {
  OrderedJson answer;
  return answer_of(app, members, answer);
}

TEST(Reasoning, StandsApartFromTheContentInAnswersAndStreams) {
  const std::string thought = "<think>\nhm \xC3\xA9\n</think>";
  App app(thinker_of(thought + "\n\nyes"));
  OrderedJson answer;
  EXPECT_EQ(answer_of(app, R"(, "logprobs": true)", answer), "hm \xC3\xA9|yes");
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
            num_tokens(thought) - num_tokens("<think"));
  // All tokens have their log probabilities, also those of markers.
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"].size(),
            answer["usage"]["completion_tokens"].get<size_t>());
  EXPECT_EQ(answer_of(app, R"(, "include_reasoning": false)"), "|yes");
}

TEST(Reasoning, IsTheWholeAnswerWhereItHasNoEnd) {
  App app(thinker_of("<think>hm"));
  OrderedJson answer;
  EXPECT_EQ(answer_of(app, "", answer), "hm|");
  EXPECT_TRUE(answer["choices"][0]["message"]["content"].is_null());
}

TEST(Reasoning, TheTemplateMayOpenIt) {
  App app(thinker_of("hm</think>yes", "hi\nassistant <think>"));
  EXPECT_EQ(answer_of(app, R"(, "chat_template_kwargs": {"opens": true})"), "hm|yes");
}

TEST(Reasoning, NoEffortTurnsItOffWhereTheTemplateCan) {
  App app(thinker_of("yes</think>", "hi\nassistant <think></think>"));
  EXPECT_EQ(answer_of(app, R"(, "reasoning_effort": "none")"), "|yes</think>");
}

TEST(Reasoning, StaysContentWhereNobodyLooksForIt) {
  AppSetup setup = thinker_of("<think>hm</think>yes");
  setup.parsers.reasoning = "none";
  App app(std::move(setup));
  OrderedJson answer;
  EXPECT_EQ(answer_of(app, "", answer), "|<think>hm</think>yes");
  EXPECT_FALSE(answer["usage"].contains("completion_tokens_details"));
  const OrderedJson completion =
      App(thinker_of("<think>hm</think>yes", "hi"))
          .post_json("/v1/completions", R"({"prompt": "hi", "temperature": 0, "max_tokens": 50})");
  EXPECT_EQ(completion["choices"][0]["text"], "<think>hm</think>yes");
}

TEST(Reasoning, CallsAreLookedForBehindIt) {
  App app(thinker_of(R"(<think>use <tool></think>{"name": "add"} no)"
                     "\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
                     "hi\n<tool_call>assistant "));
  OrderedJson answer;
  EXPECT_EQ(
      answer_of(app, R"(, "tools": [{"type": "function", "function": {"name": "add"}}])", answer),
      R"(use <tool>|{"name": "add"} no)");
  EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "add");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
}

TEST(Reasoning, ABudgetForcesItsEnd) {
  // The model's text goes on by the number of tokens: the ending takes the place of a part of it.
  const std::string ending = "\n</think>\n\n";
  App app(thinker_of("<think>" + std::string(40, 'a')));
  OrderedJson answer;
  EXPECT_EQ(answer_of(app, R"(, "thinking_token_budget": 5)", answer),
            "aaaaa|" + std::string(40 - 5 - num_tokens(ending), 'a'));
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
            1 + 5 + num_tokens("\n</think>"));
  EXPECT_EQ(answer_of(app, R"(, "thinking_token_budget": -1)"), std::string(40, 'a') + "|");
  EXPECT_EQ(answer_of(app, R"(, "thinking_token_budget": 100)"), std::string(40, 'a') + "|");
  EXPECT_EQ(answer_of(app, R"(, "thinking_token_budget": 0)"),
            "|" + std::string(40 - num_tokens(ending), 'a'));
}

TEST(Reasoning, ABudgetLeavesTheOtherFieldsAsTheyAre) {
  App app(thinker_of("<think>" + std::string(20, 'a') + "bcdefg"));
  OrderedJson answer;
  EXPECT_EQ(answer_of(app, R"(, "thinking_token_budget": 2, "stop": ["cd"])", answer),
            "aa|" + std::string(18 - num_tokens("\n</think>\n\n"), 'a') + "b");
  EXPECT_EQ(answer["choices"][0]["stop_reason"], "cd");
  // EOS does not end a request that ignores it.
  EXPECT_EQ(app.post_json(kPath, body(R"(, "thinking_token_budget": 2, "ignore_eos": true,
                                           "max_tokens": 60)"))["usage"]["completion_tokens"],
            60);
  App plain(thinker_of("yes"));
  EXPECT_EQ(answer_of(plain, R"(, "thinking_token_budget": 2)"), "|yes");
}

TEST(Reasoning, AFormatHoldsBehindIt) {
  const std::string digits = R"(, "guided_regex": "[0-9]{3}", "max_tokens": 200)";
  const std::string opens = R"(, "chat_template_kwargs": {"opens": true})";
  const auto expect_digits = [](const std::string& answer, const std::string& reasoning) {
    EXPECT_TRUE(answer.starts_with(reasoning + "|")) << answer;
    EXPECT_EQ(answer.size(), reasoning.size() + 4) << answer;
    EXPECT_EQ(answer.find_first_not_of("0123456789", reasoning.size() + 1), std::string::npos);
  };
  App opened(thinker_of("so\n</think>\n\nzz", "hi\nassistant <think>"));
  expect_digits(answer_of(opened, digits + opens), "so");
  App opening(thinker_of("<think>so</think>zz"));
  expect_digits(answer_of(opening, digits), "so");
  App without(thinker_of("123"));
  EXPECT_EQ(answer_of(without, digits), "|123");
  // Without its end there is no output: EOS cannot come before.
  App endless(thinker_of("<think>so"));
  expect_digits(answer_of(endless, digits + R"(, "thinking_token_budget": 2)"), "so");
}

TEST(Reasoning, AForcedCallFollowsIt) {
  App app(thinker_of("so</think>\n", "hi\n<tool_call>assistant <think>"));
  const std::string members = R"(, "chat_template_kwargs": {"opens": true}, "max_tokens": 200,
      "tool_choice": "required", "parallel_tool_calls": false,
      "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
      "properties": {"a": {"type": "boolean"}}, "required": ["a"],
      "additionalProperties": false}}}])";
  const OrderedJson choice = app.post_json(kPath, body(members))["choices"][0];
  EXPECT_EQ(choice["message"]["reasoning_content"], "so") << choice;
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "add") << choice;
}

TEST(Reasoning, HarmonyAnswersInItsFinalChannel) {
  std::vector<std::string> marked = pieces();
  for (const char* mark : {"<|start|>", "<|end|>", "<|channel|>", "<|message|>"}) {
    marked.emplace_back(mark);
  }
  const auto vocabulary = std::make_shared<FakeTokenizer>(marked);
  const auto trie = TokenTrie::from_tokenizer(*vocabulary, std::vector<int32_t>{kFakeEos});
  const ReasoningDialect& dialect = *find_reasoning_dialect("openai_gptoss");
  const auto tokens = std::make_shared<const ReasoningTokens>(vocabulary, trie, dialect);
  const ReasoningStart start = {.dialect = &dialect, .prompt_end = "<|start|>assistant"};
  const auto inner = fake_constraint("^ab$");  // equal ids: the marks stand behind them
  const auto constraint = constraint_behind_reasoning(tokens, start, std::nullopt, inner)->start();
  TokenMask allowed;
  const auto write = [&](const std::string& text) {
    for (const int32_t id : vocabulary->encode(text, false)) {
      ASSERT_TRUE(constraint->fill_allowed(allowed));
      ASSERT_TRUE(has_token(allowed, static_cast<size_t>(id))) << text << ": " << id;
      ASSERT_TRUE(constraint->accept(id));
    }
  };
  write("<|channel|>analysis<|message|>so <|end|>");
  // The only way from here is the final channel, and then the format.
  ASSERT_TRUE(constraint->fill_allowed(allowed));
  EXPECT_FALSE(has_token(allowed, static_cast<size_t>(*vocabulary->id_of("a"))));
  write("<|start|>assistant<|channel|>final<|message|>a");
  EXPECT_FALSE(constraint->is_complete());
  write("b");
  EXPECT_TRUE(constraint->is_complete());
}

TEST(Reasoning, ATokenMayNotEndItAndBeginTheOutput) {
  std::vector<std::string> odd = pieces();
  odd.emplace_back(">x");
  odd.emplace_back(">\n");
  const auto vocabulary = std::make_shared<FakeTokenizer>(odd);
  const auto trie = TokenTrie::from_tokenizer(*vocabulary, std::vector<int32_t>{kFakeEos});
  const ReasoningDialect& dialect = *find_reasoning_dialect("qwen3");
  const auto tokens = std::make_shared<const ReasoningTokens>(vocabulary, trie, dialect);
  const ReasoningStart start = {.dialect = &dialect, .is_inside = true};
  const auto constraint =
      constraint_behind_reasoning(tokens, start, std::nullopt, fake_constraint("^ab$"))->start();
  TokenMask allowed;
  const auto may_be = [&](const char* token) {
    EXPECT_TRUE(constraint->fill_allowed(allowed));
    return has_token(allowed, static_cast<size_t>(*vocabulary->id_of(token)));
  };
  EXPECT_TRUE(may_be(">x"));
  EXPECT_FALSE(may_be("<|eos|>"));
  for (const int32_t id : vocabulary->encode("</think", false)) ASSERT_TRUE(constraint->accept(id));
  EXPECT_FALSE(may_be(">x"));
  EXPECT_TRUE(may_be(">\n"));
  EXPECT_TRUE(may_be(">"));
}

TEST(Reasoning, ABudgetNeedsAParserAndAVocabulary) {
  App app;
  const HttpResponse response = app.post(kPath, body(R"(, "thinking_token_budget": 5)"));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("thinking_token_budget: expected a model whose reasoning"));
  ConstraintCompiler compiler(
      std::make_shared<FakeTokenizer>(std::vector<std::string>{"<|eos|>", "b"}), {kFakeEos},
      ToolDialect::kNone, 1 << 20);
  ApiRequest request;
  request.thinking_token_budget = 5;
  try {
    compiler.behind_reasoning(nullptr, request, {.dialect = find_reasoning_dialect("qwen3")});
    ADD_FAILURE() << "was taken";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.details().param, "thinking_token_budget");
    EXPECT_THAT(error.what(), HasSubstr("constrained output needs a token"));
  }
}

TEST(ChatFormat, RejectsParsersThatAreNone) {
  const auto error_of = [](const AnswerParsers& parsers) {
    try {
      ChatFormat("x", "x", OrderedJson::object(), parsers);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of({.tool_calls = "xml"}),
              HasSubstr("tool_call_parser: expected auto, hermes"));
  EXPECT_THAT(error_of({.reasoning = "qwen"}), HasSubstr("qwen3 or none, got \"qwen\"."));
  EXPECT_EQ(error_of({.tool_calls = "json", .reasoning = "none"}), "");
}

}  // namespace
}  // namespace halley
