#include "halley/server/responses/response_fields.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

using testing::HasSubstr;

const RequestRules kRules = {.sampling = {}, .vocab_size = 100, .template_reads_effort = true};

ResponseRequest parse(const std::string& members) {
  return parse_response_request("{" + members + "}", kRules);
}

ApiRequest chat_of(const std::string& members) { return parse(members).chat; }

// The error of a body that must be rejected: its field and its message.
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

TEST(ResponseFields, ATextIsOneMessageOfTheUser) {
  EXPECT_EQ(chat_of(R"("input": "hi")").messages,
            OrderedJson::parse(R"([{"role": "user", "content": "hi"}])"));
}

TEST(ResponseFields, ItemsBecomeMessages) {
  const ApiRequest chat = chat_of(R"("input": [
      {"role": "developer", "content": "a"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "b"},
                                                      {"type": "input_text", "text": "c"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [],
       "content": [{"type": "reasoning_text", "text": "d"}]},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
       "content": [{"type": "output_text", "text": "e", "annotations": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f",
       "arguments": "{\"x\": 1}"},
      {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": ""},
      {"type": "function_call_output", "call_id": "call_1", "output": "1"},
      {"type": "function_call_output", "call_id": "call_2",
       "output": [{"type": "input_text", "text": "2"}]}])");
  EXPECT_EQ(chat.messages, OrderedJson::parse(R"([
      {"role": "developer", "content": "a"},
      {"role": "user", "content": "b\nc"},
      {"role": "assistant", "content": "e", "reasoning_content": "d", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "content": "1", "tool_call_id": "call_1"},
      {"role": "tool", "content": "2", "tool_call_id": "call_2"}])"));
  EXPECT_TRUE(chat.ignored.is_empty()) << chat.ignored.text();
}

TEST(ResponseFields, ACallWithoutATextHasAMessageOfItsOwn) {
  const ApiRequest chat = chat_of(R"("input": [
      {"role": "user", "content": "a"},
      {"type": "reasoning", "summary": [{"type": "summary_text", "text": "b"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}])");
  EXPECT_EQ(chat.messages[1]["content"], "");
  EXPECT_EQ(chat.messages[1]["reasoning_content"], "b");
  EXPECT_EQ(chat.messages[1]["tool_calls"].size(), 1);
}

TEST(ResponseFields, RejectsInputThatTheModelCannotReadByName) {
  expect_error(R"("input": [{"role": "user", "content": [{"type": "input_image"}]}])",
               "input[0].content[0].type", "input_image");
  expect_error(R"("input": [{"type": "web_search_call"}])", "input[0].type", "web_search_call");
  expect_error(R"("input": [{"role": "tool", "content": "a"}])", "input[0].role", R"("tool")");
  expect_error(R"("input": [{"type": "function_call", "call_id": "1", "name": "f",
                             "arguments": "[1]"}])",
               "input[0].arguments", "expected an object");
  expect_error(R"("input": [])", "input", "got 0");
  expect_error(R"("input": 1)", "input", "got an integer");
  expect_error(R"("model": "a")", "input", "required");
}

TEST(ResponseFields, ToolsAreFunctionsWithoutANestedObject) {
  const ApiRequest chat = chat_of(R"("input": "a", "tool_choice": {"type": "function", "name": "f"},
      "tools": [{"type": "function", "name": "f", "description": "F.", "strict": true,
                 "parameters": {"type": "object"}}])");
  EXPECT_EQ(chat.tools_json, OrderedJson::parse(R"([{"type": "function", "function":
      {"name": "f", "description": "F.", "parameters": {"type": "object"}, "strict": true}}])"));
  EXPECT_EQ(chat.tools.at(0).name, "f");
  EXPECT_EQ(chat.tool_choice->kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(
      chat_of(R"("input": "a", "tools": [{"type": "function", "name": "f"}])").tool_choice->kind,
      ToolChoice::Kind::kAuto);
}

TEST(ResponseFields, RejectsToolsOfTheServerByName) {
  expect_error(R"("input": "a", "tools": [{"type": "web_search"}])", "tools[0].type",
               R"("web_search")");
  expect_error(R"("input": "a", "tools": [{"type": "function", "name": "f"},
                                          {"type": "function", "name": "f"}])",
               "tools[1].name", "twice");
  expect_error(R"("input": "a", "tools": [{"type": "function", "name": "f"}],
                  "tool_choice": {"type": "mcp", "name": "f"})",
               "tool_choice.type", R"("mcp")");
  expect_error(R"("input": "a", "tools": [{"type": "function", "name": "f"}],
                  "tool_choice": {"type": "function", "name": "g"})",
               "tool_choice", R"("g")");
}

TEST(ResponseFields, TextFormatIsTheFormatOfTheOutput) {
  const ApiRequest schema = chat_of(R"("input": "a", "text": {"format": {"type": "json_schema",
      "name": "s", "strict": true, "schema": {"type": "object"}}})");
  EXPECT_EQ(schema.output_format.kind, OutputFormat::Kind::kJsonSchema);
  EXPECT_EQ(schema.output_format.field, "text.format.schema");
  const ApiRequest object = chat_of(R"("input": "a", "text": {"format": {"type": "json_object"}})");
  EXPECT_EQ(object.output_format.kind, OutputFormat::Kind::kJsonObject);
  const ApiRequest text = chat_of(R"("input": "a", "text": {"format": {"type": "text"},
                                                            "verbosity": "low"})");
  EXPECT_EQ(text.output_format.kind, OutputFormat::Kind::kText);
  EXPECT_EQ(text.ignored.text(), "text.verbosity");
  expect_error(R"("input": "a", "text": {"format": {"type": "grammar"}})", "text.format.type",
               R"("grammar")");
  expect_error(R"("input": "a", "text": {"format": {"type": "json_schema", "name": "s"}})",
               "text.format.schema", "got nothing");
  expect_error(R"("input": "a", "text": {"fromat": {}})", R"(text."fromat")", "'format'");
}

TEST(ResponseFields, ReasoningEffortIsThatOfChats) {
  const ApiRequest chat =
      chat_of(R"("input": "a", "reasoning": {"effort": "low", "summary": "auto"})");
  EXPECT_EQ(chat.template_kwargs["reasoning_effort"], "low");
  EXPECT_EQ(chat.ignored.text(), "reasoning.summary");
  expect_error(R"("input": "a", "reasoning": {"effort": 1})", "reasoning_effort", "a string");
}

TEST(ResponseFields, LimitsAreThoseOfChats) {
  const ApiRequest chat = chat_of(
      R"("input": "a", "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.9, "stream": true)");
  EXPECT_EQ(chat.max_tokens, 5);
  EXPECT_EQ(chat.sampling.temperature, 0.5);
  EXPECT_EQ(chat.sampling.top_p, 0.9);
  EXPECT_TRUE(chat.is_stream);
  expect_error(R"("input": "a", "max_output_tokens": 0)", "max_output_tokens", "at least 1");
  expect_error(R"("input": "a", "temperature": 3)", "temperature", "0 to 2");
  expect_error(R"("input": "a", "max_tokens": 3)", "max_tokens", "max_output_tokens");
}

TEST(ResponseFields, WhatIsNotDoneIsAnErrorOrTold) {
  expect_error(R"("input": "a", "background": true)", "background", "not supported");
  expect_error(R"("input": "a", "conversation": "c")", "conversation", "previous_response_id");
  expect_error(R"("input": "a", "include": ["file_search_call.results"])", "include[0]",
               "file_search_call.results");
  EXPECT_EQ(chat_of(R"("input": "a", "include": ["reasoning.encrypted_content"],
                       "truncation": "auto")")
                .ignored.text(),
            "truncation, include.reasoning.encrypted_content");
}

TEST(ResponseFields, TheResponseRepeatsTheRequest) {
  const ResponseRequest request = parse(R"("input": "a", "instructions": "b", "temperature": 0,
      "metadata": {"k": "v"}, "reasoning": {"effort": "low"}, "store": false)");
  EXPECT_EQ(request.instructions, "b");
  EXPECT_FALSE(request.asks_to_store);
  EXPECT_EQ(request.echo["instructions"], "b");
  EXPECT_EQ(request.echo["temperature"], 0);
  EXPECT_EQ(request.echo["metadata"]["k"], "v");
  EXPECT_EQ(request.echo["reasoning"]["effort"], "low");
  EXPECT_EQ(request.echo["text"]["format"]["type"], "text");
  EXPECT_EQ(request.echo["tool_choice"], "auto");
  EXPECT_TRUE(parse(R"("input": "a")").asks_to_store);
  EXPECT_FALSE(parse(R"("input": "a")").must_store);
  EXPECT_TRUE(parse(R"("input": "a", "store": true)").must_store);
  expect_error(R"("input": "a", "metadata": {"k": 1})", "metadata", "16 texts");
}

TEST(ResponseFields, TheManualHasTheTable) {
  const std::string manual = read_text_file(str(HALLEY_SOURCE_DIR, "/docs/apis.md"), 1 << 20);
  const std::string table = fields_in_markdown(response_tables(), /*has_endpoints=*/false);
  EXPECT_NE(manual.find(table), std::string::npos)
      << "docs/apis.md: expected this table between its marks:\n"
      << table;
}

}  // namespace
}  // namespace halley
