#include "halley/server/openai/tool_calls.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

const std::vector<ApiTool>& tools() {
  static const std::vector<ApiTool> kTools = {{.name = "add", .parameters = {}},
                                              {.name = "get_weather", .parameters = {}}};
  return kTools;
}

// "content|name(arguments)|..." of a text that arrives in pieces of `num_bytes`.
std::string parse(ToolCallParser& parser, const std::string& text, size_t num_bytes) {
  ToolOutput output;
  for (size_t i = 0; i < text.size(); i += num_bytes)
    parser.push(text.substr(i, num_bytes), output);
  parser.finish(output);
  std::string out = output.content;
  for (const ToolCall& call : output.calls) out += str("|", call.name, "(", call.arguments, ")");
  return out;
}

struct Case {
  std::string text;
  std::string expected;
};

// The result must not depend on how the text was cut.
void expect_parsed(ToolDialect dialect, const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    for (const size_t num_bytes : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{1000}}) {
      const auto parser = make_tool_call_parser(dialect, tools());
      EXPECT_EQ(parse(*parser, test.text, num_bytes), test.expected)
          << test.text << " in pieces of " << num_bytes;
    }
  }
}

TEST(ToolCalls, HermesCallsAreBetweenTags) {
  expect_parsed(
      ToolDialect::kHermes,
      {
          {"Hello.", "Hello."},
          {R"(<tool_call>
{"name": "add", "arguments": {"b": 1, "a": [2, "}"]}}
</tool_call>)",
           R"(|add({"b": 1, "a": [2, "}"]}))"},
          {"Let me see.\n<tool_call>{\"name\": \"add\"}</tool_call>\n<tool_call>{\"name\": "
           "\"get_weather\", \"arguments\": {\"q\": \"</tool_call>\"}}</tool_call>\n",
           R"(Let me see.|add({})|get_weather({"q": "</tool_call>"}))"},
          {R"(<tool_call>{"name": "add", "arguments": "{\"a\": 1}"}</tool_call>)",
           R"(|add({"a":1}))"},
          // Truncated after the JSON or in it.
          {R"(<tool_call>{"name": "add", "arguments": {}}</tool)", "|add({})"},
          {R"(<tool_call>{"name": "add", "arguments": {"a": )", R"(|add({"a": ))"},
          {R"(<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>)", R"(|add({"a":1}))"},
          // Markers that are missing or repeated.
          {"<tool_call>\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n"
           "<tool_call>{\"name\": \"add\"} then",
           "<tool_call>\n then|add({\"a\": 2})|add({})"},
      });
}

TEST(ToolCalls, HermesTextThatIsNoCallStaysContent) {
  const std::vector<std::string> texts = {
      "a < b <tool",
      "a \n<tool_call>no</tool_call> b",
      "<tool_call>",
      R"(x <tool_call>{"name": "other", "arguments": {}}</tool_call>)",
      R"(<tool_call>{"name": 5}</tool_call>)",
      R"(<tool_call>{"name": "add", "arguments": [1]}</tool_call>)",
      R"(<tool_call>{"name": "add", )",
      "  spaces \n "};
  for (const std::string& text : texts) expect_parsed(ToolDialect::kHermes, {{text, text}});
}

TEST(ToolCalls, LlamaCallsAreTheWholeAnswer) {
  expect_parsed(ToolDialect::kLlama3Json,
                {
                    {R"({"name": "add", "parameters": {"a": "1"}})", R"(|add({"a": "1"}))"},
                    {R"(<|python_tag|>{"name": "add", "parameters": {}}; {"name": "get_weather"})",
                     "|add({})|get_weather({})"},
                    {R"( {"type": "function", "name": "add", "parameters": {"x": 1.5}} )",
                     R"(|add({"x": 1.5}))"},
                    {R"({"name": "add"} and more)", " and more|add({})"},
                    {R"({"name": "add"};)", "|add({})"},
                });
  const std::vector<std::string> texts = {"Hello {\"name\": \"add\"}",
                                          R"({"name": "other", "parameters": {}} x)",
                                          R"({"a": 1})",
                                          R"({"name": "add")",
                                          "<|python_tag|>import os",
                                          "<|py",
                                          "  {}"};
  for (const std::string& text : texts) expect_parsed(ToolDialect::kLlama3Json, {{text, text}});
}

TEST(ToolCalls, MistralCallsFollowTheirMarker) {
  expect_parsed(
      ToolDialect::kMistral,
      {
          {R"([TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"name": "get_weather"}])",
           R"(|add({"a": 1})|get_weather({}))"},
          {R"([TOOL_CALLS][{"name": "add", "arguments": {}, "id": "a}"}] and)", " and|add({})"},
          {R"([TOOL_CALLS][{"name": "add"}, {"name": "other"}])",
           R"(, {"name": "other"}]|add({}))"},
          {R"([TOOL_CALLS][{"name": "add"} , )", "|add({})"},
          {R"([TOOL_CALLS]add{"a": 1}[TOOL_CALLS]get_weather[ARGS]{"q": 2})",
           R"(|add({"a": 1})|get_weather({"q": 2}))"},
          {R"([TOOL_CALLS]add{"a": )", R"(|add({"a": ))"},
          {R"(Yes. [TOOL_CALLS]add[CALL_ID]123456789[ARGS]{})", "Yes.|add({})"},
      });
  const std::vector<std::string> texts = {"[TOOL",
                                          "[TOOL_CALLS]",
                                          R"([TOOL_CALLS][{"name": "other"}])",
                                          R"([TOOL_CALLS]{"name": "add"})",
                                          R"(a [TOOL_CALLS]other{"a": 1})",
                                          "[TOOL_CALLS]" + std::string(600, 'x')};
  for (const std::string& text : texts) expect_parsed(ToolDialect::kMistral, {{text, text}});
}

TEST(ToolCalls, ForcedOutputIsACallWithoutMarkers) {
  const auto named = make_forced_call_parser({ToolChoice::Kind::kNamed, "add"}, tools());
  EXPECT_EQ(parse(*named, R"({"a": 1})", 3), R"(|add({"a": 1}))");
  const auto required = make_forced_call_parser({ToolChoice::Kind::kRequired}, tools());
  EXPECT_EQ(parse(*required, R"([{"name": "add", "parameters": {"a": 1}}, {"name": "add"}])", 3),
            R"(|add({"a": 1})|add({}))");
}

TEST(ToolCalls, ContentBeforeACallIsNotHeldBack) {
  const auto parser = make_tool_call_parser(ToolDialect::kHermes, tools());
  ToolOutput output;
  parser->push("The answer is <", output);
  EXPECT_EQ(output.content, "The answer is");
  parser->push("b>", output);
  EXPECT_EQ(output.content, "The answer is <b>");
}

// "name+arguments" of each piece.
std::string pieces_of(ToolCallParser& parser, const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) {
    ToolOutput output;
    parser.push(text, output);
    EXPECT_EQ(output.content, "");
    for (const ToolCall& call : output.calls) out += str("|", call.name, "+", call.arguments);
  }
  return out;
}

TEST(ToolCalls, ArgumentsComeWhileTheyAreWritten) {
  const auto hermes = make_tool_call_parser(ToolDialect::kHermes, tools());
  EXPECT_EQ(pieces_of(*hermes, {"<tool_call>\n{\"name\": \"add\", ", "\"arguments\": ", "{\"a\"",
                                ": [1", "]", "}}", "\n</tool_call>"}),
            R"(|add+{"a"|+: [1|+]|+})");
  const auto llama = make_tool_call_parser(ToolDialect::kLlama3Json, tools());
  EXPECT_EQ(pieces_of(*llama, {"{\"name\": \"add\", \"parameters\": {\"a", "\": 1}};",
                               "{\"name\": \"add\", \"parameters\": {}}"}),
            R"(|add+{"a|+": 1}|add+{})");
  for (const char* head :
       {"[TOOL_CALLS]add[ARGS]", "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": "}) {
    const auto mistral = make_tool_call_parser(ToolDialect::kMistral, tools());
    EXPECT_EQ(pieces_of(*mistral, {head, "{\"q", "\": ", "3}"}), R"(|add+{"q|+": |+3})") << head;
  }
  const auto named = make_forced_call_parser({ToolChoice::Kind::kNamed, "add"}, tools());
  EXPECT_EQ(pieces_of(*named, {"", "{\"a", "\": 1}"}), R"(|add+{"a|+": 1})");
}

TEST(ToolCalls, PublishedTemplatesShowTheirDialect) {
  const auto dialect_of = [](const std::string& name) {
    const std::string path = str(HALLEY_SOURCE_DIR, "/testdata/chat_templates/", name, ".json");
    const Json json = parse_json(read_text_file(path, 1 << 22), path);
    return std::string(name_of(detect_tool_dialect(json.at("template").get<std::string>())));
  };
  EXPECT_EQ(dialect_of("Qwen-Qwen2.5-7B-Instruct"), "hermes");
  EXPECT_EQ(dialect_of("Qwen-Qwen3-0.6B"), "hermes");
  EXPECT_EQ(dialect_of("mistralai-Mistral-Nemo-Instruct-2407"), "mistral");
  EXPECT_EQ(dialect_of("microsoft-Phi-3.5-mini-instruct"), "none");
  EXPECT_EQ(tool_dialect_from_name("llama3_json"), ToolDialect::kLlama3Json);
  EXPECT_EQ(tool_dialect_from_name("x"), std::nullopt);
}

}  // namespace
}  // namespace halley
