#include "halley/server/anthropic/message_fields.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/server/anthropic/messages_api.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

using testing::HasSubstr;

constexpr const char* kHi = R"("messages": [{"role": "user", "content": "hi"}], "max_tokens": 5)";

RequestRules thinking_rules() {
  return {.sampling = {},
          .vocab_size = 100,
          .template_reads_enable_thinking = true,
          .has_reasoning_parser = true};
}

ApiRequest parse(const std::string& members, const RequestRules& rules = thinking_rules()) {
  return parse_message_request("{" + members + "}", ApiEndpoint::kChat, rules);
}

ApiRequest with_hi(const std::string& members, const RequestRules& rules = thinking_rules()) {
  return parse(str(kHi, ", ", members), rules);
}

void expect_error(const std::string& members, const std::string& param, const std::string& part) {
  try {
    parse(members);
    ADD_FAILURE() << "expected an error: " << members;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.details().status, 400);
    EXPECT_EQ(error.details().param, param) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(MessageFields, SystemIsTheFirstMessage) {
  EXPECT_EQ(with_hi(R"("system": "be")").messages,
            OrderedJson::parse(R"([{"role": "system", "content": "be"},
                                   {"role": "user", "content": "hi"}])"));
  const ApiRequest blocks = with_hi(R"("system": [
      {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
      {"type": "text", "text": "b"}])");
  EXPECT_EQ(blocks.messages[0]["content"], "a\nb");
  EXPECT_EQ(blocks.ignored.text(), "system[].cache_control");
}

TEST(MessageFields, BlocksBecomeMessages) {
  const ApiRequest chat = parse(R"("max_tokens": 5, "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "c", "signature": "s"},
        {"type": "text", "text": "d"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "2", "name": "g", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "1", "content": "e"},
        {"type": "tool_result", "tool_use_id": "2",
         "content": [{"type": "text", "text": "f"}]},
        {"type": "tool_result", "tool_use_id": "3"},
        {"type": "text", "text": "g"}]}])");
  EXPECT_EQ(chat.messages, OrderedJson::parse(R"([
      {"role": "user", "content": "a\nb"},
      {"role": "assistant", "content": "d", "reasoning_content": "c", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "content": "e", "tool_call_id": "1"},
      {"role": "tool", "content": "f", "tool_call_id": "2"},
      {"role": "tool", "content": "", "tool_call_id": "3"},
      {"role": "user", "content": "g"}])"));
  EXPECT_TRUE(chat.ignored.is_empty()) << chat.ignored.text();
}

TEST(MessageFields, ResultsAloneMakeNoMessageOfTheUser) {
  const ApiRequest chat = parse(R"("max_tokens": 5, "messages": [
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "1", "content": "a"}]}])");
  ASSERT_EQ(chat.messages.size(), 1);
  EXPECT_EQ(chat.messages[0]["role"], "tool");
}

TEST(MessageFields, TheModelGoesOnWithALastMessageOfTheAssistant) {
  const ApiRequest chat = parse(R"("max_tokens": 5, "messages": [
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}])");
  EXPECT_TRUE(chat.continues_final_message);
  EXPECT_FALSE(chat.adds_generation_prompt);
  EXPECT_FALSE(with_hi(R"("stream": true)").continues_final_message);
}

TEST(MessageFields, RejectsBlocksThatTheModelCannotReadByName) {
  const std::string messages = R"("max_tokens": 5, "messages": )";
  expect_error(messages + R"([{"role": "user", "content": [{"type": "image"}]}])",
               "messages[0].content[0].type", "image");
  expect_error(messages + R"([{"role": "user", "content": [{"type": "tool_result",
                             "tool_use_id": "1", "content": [{"type": "image"}]}]}])",
               "messages[0].content[0].content[0].type", "image");
  expect_error(messages + R"([{"role": "assistant", "content": [{"type": "server_tool_use"}]}])",
               "messages[0].content[0].type", "server_tool_use");
  expect_error(messages + R"([{"role": "tool", "content": "a"}])", "messages[0].role", "tool");
  expect_error(messages + R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "1",
                             "name": "f", "input": "{}"}]}])",
               "messages[0].content[0].input", "an object");
  expect_error(messages + "[]", "messages", "got 0");
  expect_error(R"("messages": [{"role": "user", "content": "a"}])", "max_tokens", "required");
}

TEST(MessageFields, ToolsHaveAnInputSchema) {
  const ApiRequest chat = with_hi(R"("tools": [{"name": "f", "description": "F.",
      "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}])");
  EXPECT_EQ(chat.tools_json, OrderedJson::parse(R"([{"type": "function", "function":
      {"name": "f", "description": "F.", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(chat.tool_choice->kind, ToolChoice::Kind::kAuto);
  EXPECT_EQ(chat.ignored.text(), "tools[].cache_control");
  expect_error(str(kHi, R"(, "tools": [{"type": "web_search_20250305", "name": "web_search"}])"),
               "tools[0].type", "web_search_20250305");
}

TEST(MessageFields, ToolChoicesAreThoseOfChats) {
  using Kind = ToolChoice::Kind;
  const auto choice = [](const std::string& json) {
    return with_hi(R"("tools": [{"name": "f", "input_schema": {}}], "tool_choice": )" + json);
  };
  EXPECT_EQ(choice(R"({"type": "auto"})").tool_choice->kind, Kind::kAuto);
  EXPECT_EQ(choice(R"({"type": "any"})").tool_choice->kind, Kind::kRequired);
  EXPECT_EQ(choice(R"({"type": "none"})").tool_choice->kind, Kind::kNone);
  EXPECT_EQ(choice(R"({"type": "tool", "name": "f"})").tool_choice->name, "f");
  EXPECT_FALSE(
      choice(R"({"type": "any", "disable_parallel_tool_use": true})").allows_parallel_calls);
  EXPECT_THROW(choice(R"({"type": "tool", "name": "g"})"), ApiError);
  EXPECT_THROW(choice(R"({"type": "required"})"), ApiError);
}

TEST(MessageFields, ThinkingIsReasoningWithABudget) {
  const ApiRequest enabled = with_hi(R"("thinking": {"type": "enabled", "budget_tokens": 7})");
  EXPECT_EQ(enabled.thinking_token_budget, 7);
  EXPECT_EQ(enabled.template_kwargs["enable_thinking"], true);
  const ApiRequest disabled = with_hi(R"("thinking": {"type": "disabled"})");
  EXPECT_EQ(disabled.template_kwargs["enable_thinking"], false);
  EXPECT_FALSE(disabled.thinking_token_budget);
  EXPECT_TRUE(with_hi(R"("thinking": {"type": "adaptive"})").template_kwargs.empty());
  EXPECT_FALSE(
      with_hi(R"("thinking": {"type": "adaptive", "display": "omitted"})").includes_reasoning);
  expect_error(str(kHi, R"(, "thinking": {"type": "enabled"})"), "thinking.budget_tokens",
               "at least 1");
}

TEST(MessageFields, ThinkingOfAModelWhoseTemplateHasNoSwitch) {
  RequestRules rules = thinking_rules();
  rules.template_reads_enable_thinking = false;
  EXPECT_EQ(with_hi(R"("thinking": {"type": "disabled"})", rules).thinking_token_budget, 0);
  rules.has_reasoning_parser = false;
  const ApiRequest enabled =
      with_hi(R"("thinking": {"type": "enabled", "budget_tokens": 7})", rules);
  EXPECT_FALSE(enabled.thinking_token_budget);
  EXPECT_EQ(enabled.ignored.text(), "thinking");
}

TEST(MessageFields, OutputConfigHasEffortAndFormat) {
  RequestRules rules = thinking_rules();
  rules.template_reads_effort = true;
  const ApiRequest chat = with_hi(R"("output_config": {"effort": "low", "format":
      {"type": "json_schema", "schema": {"type": "object"}}})",
                                  rules);
  EXPECT_EQ(chat.template_kwargs["reasoning_effort"], "low");
  EXPECT_EQ(chat.output_format.kind, OutputFormat::Kind::kJsonSchema);
  EXPECT_EQ(chat.output_format.field, "output_config.format.schema");
}

TEST(MessageFields, LimitsAreThoseOfChats) {
  const ApiRequest chat =
      with_hi(R"("stop_sequences": ["x"], "temperature": 0.5, "top_k": 3, "stream": true)");
  EXPECT_EQ(chat.max_tokens, 5);
  EXPECT_EQ(chat.sampling.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(chat.sampling.top_k, 3);
  EXPECT_TRUE(chat.is_stream);
  expect_error(str(kHi, R"(, "stop_sequences": "x")"), "stop_sequences", "a list");
  expect_error(str(kHi, R"(, "stop_sequences": [""])"), "stop_sequences", "at least 1 byte");
  expect_error(str(kHi, R"(, "stop": ["x"])"), "stop", "stop_sequences");
  expect_error(str(kHi, R"(, "n": 2)"), R"("n")", "openapi.json");
}

TEST(MessageFields, CountingNeedsNoLimit) {
  const ApiRequest request =
      parse_message_request(R"({"messages": [{"role": "user", "content": "a"}], "system": "b"})",
                            ApiEndpoint::kTokenize, thinking_rules());
  EXPECT_EQ(request.messages.size(), 2);
}

TEST(MessageFields, TheManualHasTheTable) {
  const std::string manual = read_text_file(str(HALLEY_SOURCE_DIR, "/docs/apis.md"), 1 << 20);
  const std::string table = fields_in_markdown(message_tables(), /*has_endpoints=*/false);
  EXPECT_NE(manual.find(table), std::string::npos)
      << "docs/apis.md: expected this table between its marks:\n"
      << table;
}

}  // namespace
}  // namespace halley
