// The dialects of tool calls that tool_calls_test.cc does not have, on texts as their templates
// write them.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/server/openai/python_literal.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {
namespace {

const std::vector<ApiTool>& tools() {
  static const std::vector<ApiTool> kTools = {
      {.name = "add", .parameters = {}},
      {.name = "find_route", .parameters = OrderedJson::parse(R"({"type": "object", "properties": {
           "from": {"type": "string"}, "stops": {"type": "array"}, "km": {"type": "number"},
           "is_fast": {"type": "boolean"}}})")}};
  return kTools;
}

// "content|name(arguments)|..." of a text in these pieces.
std::string parse(ToolDialect dialect, const std::vector<std::string>& pieces) {
  const auto parser = make_tool_call_parser(dialect, tools());
  ToolOutput output;
  for (const std::string& piece : pieces) parser->push(piece, output);
  parser->finish(output);
  std::string out = output.content;
  for (const ToolCall& call : output.calls) out += str("|", call.name, "(", call.arguments, ")");
  return out;
}

std::vector<std::string> cut(const std::string& text, size_t num_bytes) {
  std::vector<std::string> pieces;
  for (size_t i = 0; i < text.size(); i += num_bytes) pieces.push_back(text.substr(i, num_bytes));
  return pieces;
}

struct Case {
  std::string text;
  std::string expected;
};

// The result must not depend on how the text was cut.
void expect_parsed(ToolDialect dialect, const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    for (const size_t num_bytes : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{1000}}) {
      EXPECT_EQ(parse(dialect, cut(test.text, num_bytes)), test.expected)
          << test.text << " in pieces of " << num_bytes;
    }
  }
}

void expect_content(ToolDialect dialect, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) expect_parsed(dialect, {{text, text}});
}

TEST(ToolDialects, QwenCoderHasArgumentsInTags) {
  expect_parsed(
      ToolDialect::kQwen3Coder,
      {
          {"I look.\n\n<tool_call>\n<function=find_route>\n<parameter=from>\nSt. \"Jean\"\n\n"
           "</parameter>\n<parameter=stops>\n[\"a\", 1]\n</parameter>\n<parameter=km>\n1.50\n"
           "</parameter>\n</function>\n</tool_call>",
           R"(I look.|find_route({"from": "St. \"Jean\"\n", "stops": ["a", 1], "km": 1.50}))"},
          {"<tool_call>\n<function=add>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n"
           "<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>\n",
           R"(|add({})|add({"a": 2}))"},
          // The outer tags are missing; a value has tags of its own and an odd constant.
          {"<function=find_route><parameter=from>a</b> <x></parameter><parameter=is_fast>True"
           "</parameter></function>then",
           R"(then|find_route({"from": "a</b> <x>", "is_fast": true}))"},
          // A value that is not JSON is a string, whatever was declared.
          {"<function=find_route><parameter=km>far</parameter><parameter=other>a b</parameter>"
           "</function>",
           R"(|find_route({"km": "far", "other": "a b"}))"},
          {"<tool_call><function=find_route>\n<parameter=from>\nPar",
           R"(|find_route({"from": "Par))"},
          {"<tool_call><function=add>\n<parameter=a>\n12", R"(|add({"a": 12))"},
          {"<function=add><parameter=a>1</parameter> and so on", R"( and so on|add({"a": 1}))"},
      });
  expect_content(ToolDialect::kQwen3Coder,
                 {"Use <function=add> there", "<tool_call>\n<function=other>\n</function>",
                  "<tool_call> no", "a \n<tool_call>\n<func", "<function=add",
                  "<function=" + std::string(600, 'x') + ">", "<function=add>\n <param"});
}

TEST(ToolDialects, GlmHasKeysAndValuesInTags) {
  expect_parsed(
      ToolDialect::kGlm45,
      {
          {"Yes.\n<tool_call>find_route\n<arg_key>from</arg_key>\n<arg_value>Rome</arg_value>\n"
           "<arg_key>stops</arg_key>\n<arg_value>[1, 2]</arg_value>\n</tool_call>",
           R"(Yes.|find_route({"from": "Rome", "stops": [1, 2]}))"},
          {"<tool_call>add</tool_call><tool_call>add<arg_key>a</arg_key><arg_value>b</arg_value>"
           "</tool_call>",
           R"(|add({})|add({"a": "b"}))"},
          {"<tool_call>add\n<arg_key>a</arg_key>x", R"(<arg_key>a</arg_key>x|add({}))"},
      });
  expect_content(ToolDialect::kGlm45, {"<tool_call>other\n</tool_call>", "<tool_call>", "a <tool",
                                       "<tool_call>add\nand so on"});
}

TEST(ToolDialects, KimiHasSectionsAndIds) {
  expect_parsed(
      ToolDialect::kKimiK2,
      {
          {"Wait.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
           "<|tool_call_argument_begin|>{\"a\": {\"b\": \"}\"}}<|tool_call_end|>"
           "<|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
           "<|tool_calls_section_end|>",
           R"(Wait.|add({"a": {"b": "}"}})|add({}))"},
          {"<|tool_calls_section_begin|>\n<|tool_call_begin|> add <|tool_call_argument_begin|> "
           "{\"a\"",
           R"(|add({"a"))"},
          {"<|tool_call_begin|>no<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{}",
           "<|tool_call_begin|>no|add({})"},
      });
  expect_content(ToolDialect::kKimiK2,
                 {"<|tool_calls_section_begin|>text", "<|tool_calls_section_begin|>",
                  "<|tool_calls_section_begin|><|tool_call_begin|>functions.other:0"
                  "<|tool_call_argument_begin|>{}<|tool_call_end|>",
                  "<|tool_call_begin|>add{}", "<|tool_call_begin|>" + std::string(700, 'x')});
  const auto parser = make_tool_call_parser(ToolDialect::kKimiK2, tools());
  ToolOutput output;
  parser->push("<|tool_call_begin|>functions.add:3<|tool_call_argument_begin|>{", output);
  ASSERT_EQ(output.calls.size(), 1u);
  EXPECT_EQ(output.calls[0].id, "functions.add:3");
}

TEST(ToolDialects, DeepseekHasTwoForms) {
  expect_parsed(ToolDialect::kDeepseekV3, {
                                              {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
                                               "function<｜tool▁sep｜>add\n```json\n{\"a\": 1}\n"
                                               "```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>"
                                               "function<｜tool▁sep｜>add\n```json\n{}\n```"
                                               "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                                               R"(|add({"a": 1})|add({}))"},
                                              {"So:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
                                               "add<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
                                               "<｜tool▁calls▁end｜> done",
                                               R"(So: done|add({"a": 1}))"},
                                          });
  expect_content(ToolDialect::kDeepseekV3,
                 {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>add{}",
                  "<｜tool▁call▁begin｜>function<｜tool▁sep｜>other\n```json\n{}\n```",
                  "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n{}"});
}

TEST(ToolDialects, HarmonyCallsAreMessagesToATool) {
  expect_parsed(
      ToolDialect::kHarmony,
      {
          {"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
           R"(|add({"a": 1}))"},
          {"I add.<|channel|>commentary to=functions.add<|message|>{}<|call|>", "I add.|add({})"},
      });
  expect_content(ToolDialect::kHarmony, {"<|channel|>final<|message|>{}",
                                         "<|channel|>commentary to=functions.no<|message|>{}",
                                         "<|channel|>commentary to=functions.add {}"});
}

TEST(ToolDialects, GraniteCallsAreAListBehindAMarker) {
  expect_parsed(ToolDialect::kGranite,
                {{R"(<|tool_call|>[{"name": "add", "arguments": {"a": 1}}, {"name": "add"}])",
                  R"(|add({"a": 1})|add({}))"}});
  expect_content(ToolDialect::kGranite, {R"([{"name": "add"}])", "<|tool_call|>no"});
}

TEST(ToolDialects, PythonicCallsAreTheWholeAnswer) {
  expect_parsed(
      ToolDialect::kLlama4Pythonic,
      {
          {R"x([find_route(from="St. \"J\" (a, b)", stops=['x', 1, -2.5], is_fast=True), add()])x",
           R"x(|find_route({"from": "St. \"J\" (a, b)", "stops": ["x",1,-2.5], "is_fast": true}))x"
           "|add({})"},
          {"<|python_start|>[add(a={'k': None, \"l\": (1,)})]<|python_end|>",
           R"(|add({"a": {"k":null,"l":[1]}}))"},
          {"[add(a=1), add(b=", R"(, add(b=|add({"a": 1}))"},
          {"[add(a=1, b=[2", R"(|add({"a": 1))"},
          {"[add(a=1)] and more", R"( and more|add({"a": 1}))"},
          {"[add(a=1, b)]", R"( b)]|add({"a": 1}))"},
      });
  expect_content(ToolDialect::kLlama4Pythonic,
                 {"[other(a=1)]", "Say [add(a=1)]", "[add(1)]", "[1, 2]", "[add(a=x)]", "[add(",
                  "<|python_start|>import os", "[", "[" + std::string(600, 'x')});
}

TEST(ToolDialects, AnyJsonOfCallsWillDo) {
  expect_parsed(
      ToolDialect::kJson,
      {
          {R"({"name": "add", "arguments": {"a": 1}})", R"(|add({"a": 1}))"},
          {"```json\n[{\"name\": \"add\", \"parameters\": {}}, {\"name\": \"add\"}]\n```\n",
           R"(|add({})|add({}))"},
          {"```\n{\"name\": \"add\"}\n``` then", "\n``` then|add({})"},
      });
  expect_content(ToolDialect::kJson, {"[1, 2]", "```json\n{\"a\": 1}\n```", "```python\nx\n```",
                                      "Hello", R"([{"name": "other"}])", "``"});
}

TEST(ToolDialects, StringsComeWhileTheyAreWritten) {
  const auto parser = make_tool_call_parser(ToolDialect::kQwen3Coder, tools());
  std::string pieces;
  for (const char* text : {"<tool_call>\n<function=find_route>\n<parameter=from>\n", "St. ", "Jean",
                           "\n</parameter>\n", "</function>"}) {
    ToolOutput output;
    parser->push(text, output);
    EXPECT_EQ(output.content, "");
    for (const ToolCall& call : output.calls) pieces += str("|", call.name, "+", call.arguments);
  }
  EXPECT_EQ(pieces, R"(|find_route+{"from": "|+St. |+Jean|+"|+})");
}

// Text made of markers, their beginnings and other characters: the result does not depend on the
// pieces, and nothing is lost where there is no call.
TEST(ToolDialects, MalformedTextStaysContent) {
  std::mt19937 random(5);
  const std::vector<std::string> parts = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=",
                                          "add",
                                          ">",
                                          "<parameter=",
                                          "</parameter>",
                                          "</function>",
                                          "\n",
                                          " ",
                                          "{\"a\": 1}",
                                          "{",
                                          "}",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "<|tool_call_begin|>",
                                          "<|tool_call_argument_begin|>",
                                          "functions.add:0",
                                          "<|tool_calls_section_begin|>",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁sep｜>",
                                          "```json",
                                          "```",
                                          "<|channel|>commentary to=functions.",
                                          "<|message|>",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          "=",
                                          ",",
                                          "'",
                                          "\"",
                                          "\\",
                                          "a",
                                          "<",
                                          "{\"name\": \"add\"}",
                                          "<|tool_call|>",
                                          "[TOOL_CALLS]",
                                          "<|python_start|>"};
  for (const ToolDialectRow& row : tool_dialects()) {
    if (row.dialect == ToolDialect::kNone) continue;
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (size_t n = random() % 14; n > 0; --n) text += parts[random() % parts.size()];
      const std::string whole = parse(row.dialect, {text});
      EXPECT_EQ(parse(row.dialect, cut(text, 1)), whole) << row.name << ": " << text;
      EXPECT_EQ(parse(row.dialect, cut(text, 5)), whole) << row.name << ": " << text;
      const bool has_call = whole.find("|add(") != std::string::npos;
      EXPECT_TRUE(has_call || whole == text) << row.name << ": " << whole << " from " << text;
    }
  }
}

TEST(ToolDialects, TemplatesShowTheirDialect) {
  const auto name_in = [](const std::string& source) {
    return std::string(name_of(detect_tool_dialect(source)));
  };
  EXPECT_EQ(name_in("<|channel|> namespace functions"), "openai");
  EXPECT_EQ(name_in("<tool_call>\n<function=x>\n<parameter=y>"), "qwen3_coder");
  EXPECT_EQ(name_in("<tool_call>{f}\n<arg_key>"), "glm45");
  EXPECT_EQ(name_in("<|tool_calls_section_begin|><|tool_call_begin|>"), "kimi_k2");
  EXPECT_EQ(name_in("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"), "deepseek_v3");
  EXPECT_EQ(name_in("<|tool_call|>"), "granite");
  EXPECT_EQ(name_in("[func_name1(params_name1=params_value1)]"), "llama4_pythonic");
  for (const ToolDialectRow& row : tool_dialects()) {
    EXPECT_EQ(tool_dialect_from_name(row.name), row.dialect);
  }
}

TEST(PythonLiteral, IsJson) {
  const auto json_of = [](const std::string& text) {
    const auto json = parse_python_literal(text);
    return json ? json->dump() : std::string("none");
  };
  EXPECT_EQ(json_of(R"( 'it\'s \x41\u00e9 \q' )"), "\"it's A\xC3\xA9 \\\\q\"");
  EXPECT_EQ(json_of(R"("\ud83d\ude00")"), "\"\xF0\x9F\x98\x80\"");
  EXPECT_EQ(json_of("[True, False, None, +1, -2e3, ()]"), "[true,false,null,1,-2000.0,[]]");
  EXPECT_EQ(json_of("{'a': {'b': [1,],},}"), R"({"a":{"b":[1]}})");
  for (const char* text :
       {"", "x", "1 2", "'a", "[1", "{1: 2}", "{'a'}", "'\\", "'\\xg0'", "[,]"}) {
    EXPECT_EQ(json_of(text), "none") << text;
  }
  EXPECT_EQ(json_of(std::string(100, '[') + std::string(100, ']')), "none");
}

}  // namespace
}  // namespace halley
