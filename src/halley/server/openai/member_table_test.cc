#include "halley/server/openai/member_table.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

using testing::HasSubstr;

ApiRequest parse_chat(const std::string& members, const RequestRules& rules) {
  return parse_request(R"({"messages": [{"role": "user", "content": "hi"}])" + members + "}",
                       ApiEndpoint::kChat, rules);
}
ApiRequest parse_chat(const std::string& members) {
  return parse_chat(members, {.sampling = {}, .vocab_size = 100});
}
ApiRequest parse_messages(const std::string& messages) {
  return parse_request(R"({"messages": [)" + messages + "]}", ApiEndpoint::kChat,
                       {.sampling = {}, .vocab_size = 100});
}

std::string error_of(const std::string& members) {
  try {
    parse_chat(members);
  } catch (const ApiError& error) {
    return error.what();
  }
  return "was taken";
}

TEST(MemberTable, HasARowForEachKindInTheirOrder) {
  ASSERT_EQ(object_members().size(), static_cast<size_t>(ObjectKind::kSlo) + 1);
  for (size_t i = 0; i < object_members().size(); ++i) {
    EXPECT_EQ(object_members()[i].kind, static_cast<ObjectKind>(i));
  }
}

TEST(MemberTable, IgnoresWhatClientsAddAtEveryDepth) {
  const ApiRequest request = parse_messages(R"(
      {"role": "user", "cache_control": {"type": "ephemeral"},
       "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                   {"type": "text", "text": "b", "cache_control": null}]},
      {"role": "assistant", "content": "c", "provider_specific_fields": {"x": [1, {"y": 2}]},
       "refusal": null, "annotations": [], "parsed": {"a": 1}, "audio": null, "images": [],
       "tool_calls": [{"id": "1", "type": "function", "extra": 1, "index": 0,
                       "function": {"name": "f", "arguments": "{}", "thought": "t",
                                    "parsed_arguments": {}}}]})");
  EXPECT_EQ(request.ignored.text(),
            "messages[].cache_control, messages[].content[].cache_control, "
            "messages[].provider_specific_fields, messages[].tool_calls[].extra, "
            "messages[].tool_calls[].function.thought");
  EXPECT_EQ(request.messages[0].dump(), R"({"role":"user","content":"a\nb"})");
  EXPECT_EQ(request.messages[1].dump(),
            R"({"role":"assistant","tool_calls":[{"id":"1","type":"function",)"
            R"("function":{"name":"f","arguments":{}}}],"content":"c"})");
}

TEST(MemberTable, TemplatesDoNotSeeIgnoredMembersOfTools) {
  const ApiRequest request = parse_chat(R"(, "tools": [{"type": "function",
      "cache_control": {"type": "ephemeral"}, "function": {"name": "f", "defer": true,
      "parameters": {"cache_control": 1}, "strict": true}}])");
  EXPECT_EQ(request.ignored.text(), "tools[].cache_control, tools[].function.defer");
  EXPECT_EQ(request.tools_json.dump(),
            R"([{"type":"function","function":{"name":"f","parameters":{"cache_control":1},)"
            R"("strict":true}}])");
}

TEST(MemberTable, ReadsTheOtherNamesOfMembers) {
  const ApiRequest request = parse_messages(R"(
      {"role": "assistant", "content": "a", "reasoning": "r"},
      {"role": "assistant", "content": null, "reasoning_content": "r", "reasoning": "r"},
      {"role": "assistant", "content": null, "refusal": "no"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "r", "signature": "s"},
                                        {"type": "text", "text": "a"},
                                        {"type": "refusal", "refusal": "b"}]})");
  EXPECT_EQ(request.messages[0]["reasoning_content"], "r");
  EXPECT_EQ(request.messages[1]["reasoning_content"], "r");
  EXPECT_EQ(request.messages[1]["content"], "");
  EXPECT_EQ(request.messages[2]["content"], "no");
  EXPECT_EQ(request.messages[3]["content"], "a\nb");
  EXPECT_EQ(request.ignored.text(), "messages[].content[].thinking");
}

TEST(MemberTable, RejectsWhatWouldChangeTheAnswer) {
  EXPECT_THAT(error_of(R"(, "stream": true, "stream_options": {"include_usge": true})"),
              HasSubstr("Did you mean 'include_usage'?"));
  EXPECT_THAT(error_of(R"(, "response_format": {"type": "json_object", "schemas": {}})"),
              HasSubstr("response_format.\"schemas\": expected no such member."));
  for (const char* member : {R"("images": ["a"])", R"("prefix": true)", R"("audio": {"id": "a"})",
                             R"("function_call": {"name": "f"})"}) {
    const std::string message = R"({"role": "assistant", "content": "a", )";
    EXPECT_THROW(parse_messages(message + member + "}"), ApiError) << member;
  }
}

TEST(MemberTable, AnOperatorMayHaveAllUnknownMembersIgnored) {
  const RequestRules rules = {.sampling = {}, .vocab_size = 100, .ignores_unknown_fields = true};
  const ApiRequest request =
      parse_chat(R"(, "frobnicate": 1, "stream": true, "stream_options": {"x": 1})", rules);
  EXPECT_EQ(request.ignored.text(), "frobnicate, stream_options.x");
}

TEST(MemberTable, SuggestsTheFieldThatWasMeant) {
  EXPECT_THAT(error_of(R"(, "max_token": 3)"), HasSubstr("Did you mean 'max_tokens'?"));
  EXPECT_THAT(error_of(R"(, "Temperature": 3)"), HasSubstr("Did you mean 'temperature'?"));
  EXPECT_THAT(error_of(R"(, "echo": true)"), HasSubstr("It is a field of completions."));
  EXPECT_THAT(error_of(R"(, "frobnicate": true)"), HasSubstr("Leave it out"));
}

TEST(MemberTable, ReportsFieldsThatChangeNothing) {
  EXPECT_EQ(parse_chat(R"(, "verbosity": "low", "store": true, "service_tier": "flex",
      "thinking": {"type": "enabled"}, "metadata": {"a": "b"}, "user": "u",
      "safety_identifier": "s", "prompt_cache_key": "k")")
                .ignored.text(),
            "verbosity, store, service_tier, thinking");
  // Continue sends the text that it edits, LiteLLM's provider "openrouter" asks for the usage.
  EXPECT_EQ(parse_chat(R"(, "prediction": {"type": "content", "content": "x"},
      "usage": {"include": true})")
                .ignored.text(),
            "prediction, usage");
  EXPECT_TRUE(parse_chat(R"(, "verbosity": "medium", "store": false, "service_tier": "auto")")
                  .ignored.is_empty());
}

TEST(MemberTable, ReasoningEffortIsAVariableOfTheTemplate) {
  EXPECT_EQ(parse_chat(R"(, "reasoning_effort": "high")").ignored.text(), "reasoning_effort");
  const RequestRules rules = {.sampling = {}, .vocab_size = 100, .template_reads_effort = true};
  const ApiRequest request = parse_chat(R"(, "reasoning_effort": "high")", rules);
  EXPECT_TRUE(request.ignored.is_empty());
  EXPECT_EQ(request.template_kwargs.dump(), R"({"reasoning_effort":"high"})");
  EXPECT_EQ(parse_chat(R"(, "reasoning_effort": "high",
                           "chat_template_kwargs": {"reasoning_effort": "low"})",
                       rules)
                .template_kwargs.dump(),
            R"({"reasoning_effort":"low"})");
}

TEST(IgnoredMembers, AnyNamesGiveAShortTextOfPlainCharacters) {
  IgnoredMembers ignored;
  ignored.add("messages[]", "a\r\nset-cookie: b, \xC3\xA4\x00%");
  EXPECT_EQ(ignored.text(), "messages[].a%0D%0Aset-cookie%3A%20b%2C%20%C3%A4");
  ignored.add({}, std::string(100'000, '\n'));
  ignored.add({}, std::string(200'000, '\n'));
  for (int i = 0; i < 1000; ++i) ignored.add("tools[]", "x" + std::to_string(i));
  const std::string text = ignored.text();
  EXPECT_LT(text.size(), 2048u);
  EXPECT_THAT(text, testing::EndsWith(", ..."));
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < '\x7f'; }));
}

TEST(IgnoredMembers, EachPathIsToldOnce) {
  IgnoredMembers ignored;
  for (int i = 0; i < 3; ++i) {
    ignored.add("tools[]", "a");
    ignored.add("messages[]", "a");
  }
  EXPECT_EQ(ignored.text(), "tools[].a, messages[].a");
}

}  // namespace
}  // namespace halley
