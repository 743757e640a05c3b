// Tests of constraints on the output: what requests describe is kept, and errors name the field.
#include "halley/server/app/output_constraint.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/server/app/testing/app_fixture.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

constexpr const char* kFormat = R"({"messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 400, "seed": 1, "response_format": {"type": "json_schema", "json_schema":
    {"name": "x", "schema": )";

TEST(OutputConstraint, KeepsASchema) {
  App app;
  const OrderedJson answer = app.post_json(
      "/v1/chat/completions", std::string(kFormat) + R"({"enum": ["abc", 17, {"x": []}]}}}})");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const auto value =
      OrderedJson::parse(answer["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_TRUE(value == "abc" || value == 17 || value == OrderedJson({{"x", OrderedJson::array()}}));
}

TEST(OutputConstraint, NamesThePlaceInASchemaThatIsWrong) {
  App app;
  const HttpResponse response =
      app.post("/v1/chat/completions", std::string(kFormat) + R"({"type": "what"}}}})");
  EXPECT_EQ(response.status, 400);
  const OrderedJson error = OrderedJson::parse(response.body)["error"];
  EXPECT_EQ(error["param"], "response_format.json_schema.schema");
}

std::string completion_of(App& app, const std::string& members) {
  const OrderedJson answer = app.post_json(
      "/v1/completions", R"({"prompt": "a", "max_tokens": 200, "seed": 1, )" + members + "}");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop") << members;
  return answer["choices"][0]["text"].get<std::string>();
}

TEST(OutputConstraint, KeepsARegexAChoiceAndAGrammar) {
  App app;
  const auto is_date = testing::MatchesRegex("[0-9][0-9][0-9][0-9]-[0-9][0-9]");
  for (const char* name : {"guided_regex", "regex"}) {
    EXPECT_THAT(completion_of(app, std::string("\"") + name + R"(": "\\d{4}-\\d{2}")"), is_date);
  }
  EXPECT_THAT(completion_of(app, R"("structured_outputs": {"regex": "^\\d{4}-\\d{2}$"})"), is_date);
  EXPECT_THAT(completion_of(app, R"("guided_choice": ["red", "green"])"),
              testing::AnyOf("red", "green"));
  for (const char* name : {"guided_grammar", "grammar", "ebnf"}) {
    EXPECT_THAT(completion_of(app, std::string("\"") + name +
                                       R"(": "root ::= \"x\" tail\ntail ::= \"y\" | \"zz\"")"),
                testing::AnyOf("xy", "xzz"));
  }
  EXPECT_EQ(completion_of(app, R"("json_schema": {"const": 17})"), "17");
  EXPECT_EQ(completion_of(app, R"("guided_json": "{\"const\": 18}")"), "18");
}

TEST(OutputConstraint, TellsThatItemsMayStandTwice) {
  App app;
  const auto ignored_of = [&](const std::string& schema) {
    const HttpResponse response =
        app.post("/v1/completions",
                 R"({"prompt": "a", "max_tokens": 3, "guided_json": {"items": {"items": )" +
                     schema + R"(, "uniqueItems": true, "type": "array"}}})");
    EXPECT_EQ(response.status, 200) << response.body;
    for (const auto& [name, value] : response.headers) {
      if (name == "x-halley-ignored") return value;
    }
    return std::string();
  };
  EXPECT_EQ(ignored_of(R"({"type": "integer"})"), "guided_json.uniqueItems");
  EXPECT_EQ(ignored_of(R"({"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]})"), "guided_json.uniqueItems");
  EXPECT_EQ(ignored_of(R"({"enum": [1, 2, 3, 4, 5, 6, 7, 8]})"), "");
  EXPECT_EQ(ignored_of(R"({"type": "boolean"})"), "");
}

TEST(OutputConstraint, NamesTheFieldOfAnOutputFormatThatIsWrong) {
  App app;
  std::string many = "0";
  for (int i = 1; i < 3000; ++i) many += ", " + std::to_string(i);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("structured_outputs": {"regex": "a("})", "structured_outputs.regex"},
      {R"("guided_regex": "(?=a)b")", "guided_regex"},
      {R"("regex": "[^\\s\\S]")", "regex"},
      {R"("guided_grammar": "root ::= x")", "guided_grammar"},
      {R"("structured_outputs": {"json": {"type": "what"}})", "structured_outputs.json"},
      {R"("guided_json": {"enum": [)" + many + "]}", "guided_json"},  // of too many beginnings
  };
  for (const auto& [members, param] : cases) {
    const HttpResponse response =
        app.post("/v1/completions", R"({"prompt": "a", )" + members + "}");
    EXPECT_EQ(response.status, 400) << members;
    EXPECT_EQ(OrderedJson::parse(response.body)["error"]["param"], param);
  }
}

// A model that writes "a" wherever it may.
AppSetup writer_of_letters() {
  AppSetup setup;
  setup.logits = [](std::span<const int32_t>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>(*tokenizer()->id_of("a"))] = 10;
  };
  return setup;
}

// The letters may be split into groups in more and more ways.
TEST(OutputConstraint, NamesTheFieldOfAConstraintWhoseLimitsArePassed) {
  App app(writer_of_letters());
  const auto expect_error = [&](const std::string& path, const std::string& members,
                                const std::string& param) {
    const HttpResponse response =
        app.post(path, R"({"max_tokens": 400, "temperature": 0, )" + members + "}");
    EXPECT_EQ(response.status, 400) << members;
    const OrderedJson error = OrderedJson::parse(response.body)["error"];
    EXPECT_EQ(error["param"], param);
    EXPECT_EQ(error["message"], constraint_limit_error(param));
  };
  const std::string pattern = R"("^((a{0,500}){0,500}){0,500}$")";
  const std::string schema = R"({"type": "string", "pattern": )" + pattern + "}";
  const std::string prompt = R"("prompt": "a", )";
  expect_error("/v1/completions", prompt + R"("guided_regex": )" + pattern, "guided_regex");
  expect_error("/v1/completions", prompt + R"("structured_outputs": {"json": )" + schema + "}",
               "structured_outputs.json");
  expect_error("/v1/completions",
               prompt + R"("grammar": "root ::= ((\"a\"{0,500}){0,500}){0,500}")", "grammar");
  const std::string chat = R"("messages": [{"role": "user", "content": "hi"}], )";
  expect_error("/v1/chat/completions",
               chat + R"("tool_choice": "required", "tools": [{"type": "function", "function":
                        {"name": "f", "parameters": {"properties": {"x": )" +
                   schema + R"(}, "required": ["x"]}}}])",
               "tools");
}

constexpr const char* kForced = R"({"messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 400, "seed": 1, "tools": [
      {"type": "function", "function": {"name": "f", "parameters":
        {"properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}}},
      {"type": "function", "function": {"name": "g", "parameters":
        {"properties": {"a": {"enum": [3]}}, "required": ["a"], "additionalProperties": false}}}],
    "parallel_tool_calls": false, "tool_choice": )";

TEST(OutputConstraint, ForcesToolCalls) {
  App app;
  const OrderedJson named =
      app.post_json("/v1/chat/completions", std::string(kForced) + R"({"type": "function",
                                                "function": {"name": "g"}}})");
  const OrderedJson& call = named["choices"][0]["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "g");
  EXPECT_EQ(OrderedJson::parse(call["arguments"].get<std::string>()).dump(), R"({"a":3})");
  const OrderedJson required =
      app.post_json("/v1/chat/completions", std::string(kForced) + R"("required"})");
  EXPECT_EQ(required["choices"][0]["finish_reason"], "tool_calls");
  ASSERT_EQ(required["choices"][0]["message"]["tool_calls"].size(), 1u);
}

// Some tens of kilobytes; equal for equal endings.
ApiRequest regex_request(char ending) {
  ApiRequest request;
  request.output_format = {.kind = OutputFormat::Kind::kRegex,
                           .field = "guided_regex",
                           .text = std::string(1000, 'x') + ending};
  return request;
}

ConstraintCompiler compiler_with(size_t num_bytes_max) {
  return {tokenizer(), {kFakeEos}, ToolDialect::kNone, num_bytes_max};
}

size_t regex_bytes() {
  return compiler_with(size_t{1} << 30).compile(regex_request('a'))->num_bytes();
}

ApiError::Details error_of(ConstraintCompiler& compiler, const ApiRequest& request) {
  try {
    compiler.compile(request);
  } catch (const ApiError& error) {
    return error.details();
  }
  return {.status = 200};
}

TEST(ConstraintCompiler, RejectsWhatConstraintsInUseLeaveNoMemoryFor) {
  ConstraintCompiler compiler = compiler_with(4 * regex_bytes());
  std::vector<std::shared_ptr<const CompiledConstraint>> used;
  for (const char ending : {'a', 'b', 'c'}) used.push_back(compiler.compile(regex_request(ending)));
  const ApiError::Details error = error_of(compiler, regex_request('d'));
  EXPECT_EQ(error.status, 503);
  EXPECT_GT(error.retry_after_s, 0);
  EXPECT_EQ(compiler.compile(regex_request('b')), used[1]) << "equal ones count once";
  used[0].reset();
  EXPECT_NE(compiler.find(regex_request('a')), nullptr) << "it is kept while there is memory";
  EXPECT_NE(compiler.compile(regex_request('d')), nullptr);
  EXPECT_EQ(compiler.find(regex_request('a')), nullptr);
}

TEST(ConstraintCompiler, RejectsWhatAllMemoryDoesNotSufficeFor) {
  ConstraintCompiler compiler = compiler_with(regex_bytes());
  const ApiError::Details error = error_of(compiler, regex_request('a'));
  EXPECT_EQ(error.status, 400) << "its key counts too";
  EXPECT_EQ(error.param, "guided_regex");
  EXPECT_EQ(error_of(compiler, regex_request('a')).status, 400);
}

TEST(OutputConstraint, OneThatOthersLeaveNoMemoryForIsAnsweredWith503) {
  Signal is_running, may_go_on;
  AppSetup setup;
  setup.app.constraint_bytes_max = static_cast<int64_t>(2 * regex_bytes());
  setup.on_forward = [&](const ForwardBatch&) {
    is_running.set();
    may_go_on.wait();
  };
  App app(std::move(setup));
  const auto body_of = [](char ending) {
    return R"({"prompt": "a", "max_tokens": 3, "guided_regex": ")" +
           regex_request(ending).output_format.text + "\"}";
  };
  const auto running = app.start("POST", "/v1/completions", body_of('a'));
  is_running.wait();
  const HttpResponse rejected = app.post("/v1/completions", body_of('b'));
  EXPECT_EQ(rejected.status, 503);
  EXPECT_THAT(rejected.body, testing::HasSubstr("Try again later, with a smaller one"));
  EXPECT_THAT(rejected.headers, testing::Contains(testing::Pair("retry-after", "1")));
  may_go_on.set();
  EXPECT_EQ(running->wait().status, 200);
  // The constraint is gone a moment after the answer.
  while (app.post("/v1/completions", body_of('b')).status != 200) std::this_thread::yield();
}

TEST(OutputConstraint, ItsMemoryIsNotNothing) {
  AppSetup setup;
  setup.app.constraint_bytes_max = 0;
  try {
    const App app(std::move(setup));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "memory of constraints: expected at least 1 byte, got 0.");
  }
}

}  // namespace
}  // namespace halley
