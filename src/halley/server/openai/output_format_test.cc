#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/openai/api_error.h"
#include "halley/server/openai/output_format_fields.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = OutputFormat::Kind;

ApiRequest parse(const std::string& members) {
  return parse_request(R"({"prompt": "a", )" + members + "}", ApiEndpoint::kCompletions,
                       {.sampling = {}, .vocab_size = 100});
}

OutputFormat format_of(const std::string& members) { return parse(members).output_format; }

TEST(OutputFormat, HasTheNamesOfOtherServers) {
  struct Case {
    std::string members, field;
    Kind kind;
  };
  const std::vector<Case> cases = {
      {R"("structured_outputs": {"json": {"type": "null"}})", "structured_outputs.json",
       Kind::kJsonSchema},
      {R"("structured_outputs": {"json": "{\"type\": \"null\"}", "regex": null})",
       "structured_outputs.json", Kind::kJsonSchema},
      {R"("structured_outputs": {"regex": "a+", "disable_fallback": true})",
       "structured_outputs.regex", Kind::kRegex},
      {R"("structured_outputs": {"choice": ["a"]})", "structured_outputs.choice", Kind::kChoice},
      {R"("structured_outputs": {"grammar": "g", "json_object": false})",
       "structured_outputs.grammar", Kind::kGrammar},
      {R"("structured_outputs": {"json_object": true})", "structured_outputs.json_object",
       Kind::kJsonObject},
      {R"("guided_json": {"type": "null"})", "guided_json", Kind::kJsonSchema},
      {R"("guided_regex": "a")", "guided_regex", Kind::kRegex},
      {R"("guided_choice": ["a"])", "guided_choice", Kind::kChoice},
      {R"("guided_grammar": "g")", "guided_grammar", Kind::kGrammar},
      {R"("json_schema": {"type": "null"})", "json_schema", Kind::kJsonSchema},
      {R"("json_schema": "{}")", "json_schema", Kind::kJsonSchema},
      {R"("grammar": "g")", "grammar", Kind::kGrammar},
      {R"("regex": "a", "response_format": {"type": "text"})", "regex", Kind::kRegex},
      {R"("ebnf": "g")", "ebnf", Kind::kGrammar},
      {R"("response_format": {"type": "json_object", "schema": {}})", "response_format.schema",
       Kind::kJsonSchema},
      {R"("response_format": {"type": "json_schema", "schema": {}})", "response_format.schema",
       Kind::kJsonSchema},
      {R"("response_format": {"type": "text"})", "", Kind::kText},
  };
  for (const Case& c : cases) {
    const OutputFormat format = format_of(c.members);
    EXPECT_EQ(format.kind, c.kind) << c.members;
    EXPECT_EQ(format.field, c.field) << c.members;
  }
  EXPECT_EQ(format_of(R"("guided_json": "{\"b\": 1, \"a\": 2}")").schema.dump(),
            R"({"b":1,"a":2})");
  EXPECT_EQ(format_of(R"("regex": "a+")").text, "a+");
  EXPECT_THAT(format_of(R"("guided_choice": ["b", ""])").choices, ElementsAre("b", ""));
}

TEST(OutputFormat, IsRejectedWithItsField) {
  const std::string long_text(70'000, 'a');
  std::string choices = "\"\"";
  for (int i = 0; i < 1024; ++i) choices += ",\"\"";
  struct Case {
    std::string members, param, message;
  };
  const std::vector<Case> cases = {
      {R"("guided_json": {}, "response_format": {"type": "json_object"})", "guided_json",
       "expected one description of the output in a request, got response_format too."},
      {R"("structured_outputs": {"regex": "a", "choice": ["b"]})", "structured_outputs.choice",
       "got structured_outputs.regex too"},
      {R"("structured_outputs": {"regex": "a"}, "grammar": "g")", "grammar",
       "got structured_outputs.regex too"},
      {R"("structured_outputs": {})", "structured_outputs", "expected one of json, regex"},
      {R"("structured_outputs": {"json_object": false})", "structured_outputs", "got none"},
      {R"("structured_outputs": {"json_object": 1})", "structured_outputs.json_object",
       "expected true or false, got an integer"},
      {R"("structured_outputs": {"regexp": "a"})", "structured_outputs.\"regexp\"",
       "Did you mean 'regex'?"},
      {R"("structured_outputs": {"structural_tag": "a"})", "structured_outputs.structural_tag",
       "Use tools."},
      {R"("structured_outputs": "a")", "structured_outputs", "expected an object"},
      {R"("structured_outputs": {"regex": ""})", "structured_outputs.regex", "got an empty one"},
      {R"("structured_outputs": {"regex": 1})", "structured_outputs.regex", "got an integer"},
      {R"("structured_outputs": {"grammar": ")" + long_text + "\"}", "structured_outputs.grammar",
       "at most 65536 bytes, got 70000"},
      {R"("guided_regex": ")" + long_text + '"', "guided_regex", "16384"},
      {R"("guided_json": 5)", "guided_json", "expected an object, got an integer"},
      {R"("guided_json": "{")", "guided_json", "guided_json: not valid JSON"},
      {R"("guided_json": "5")", "guided_json", "expected an object, got an integer"},
      {R"("guided_choice": [])", "guided_choice", "a list of 1 to 1024 texts, got 0"},
      {R"("guided_choice": [)" + choices + "]", "guided_choice", "got 1025"},
      {R"("guided_choice": "a")", "guided_choice", "got a string"},
      {R"("guided_choice": ["a", 5])", "guided_choice[1]", "expected a text, got an integer"},
      {R"("guided_choice": [")" + long_text + "\"]", "guided_choice[0]", "at most 16384 bytes"},
      {R"("response_format": {"type": "text", "schema": {}})", "response_format.schema",
       "expected type \"json_object\""},
      {R"("response_format": {"type": "json_object", "json_schema": {"name": "x", "schema": {}}})",
       "response_format.json_schema", "expected type \"json_schema\" with it"},
      {R"("response_format": {"type": "json_schema", "schema": {}, "json_schema": {"name": "x"}})",
       "response_format.json_schema", "no \"schema\" with it"},
      {R"("guided_whitespace_pattern": " ")", "guided_whitespace_pattern", "expected nothing"},
  };
  for (const Case& c : cases) {
    try {
      parse(c.members);
      ADD_FAILURE() << "was taken: " << c.members.substr(0, 100);
    } catch (const ApiError& error) {
      EXPECT_EQ(error.details().param, c.param) << c.members.substr(0, 100);
      EXPECT_THAT(error.what(), HasSubstr(c.message)) << c.members.substr(0, 100);
    }
  }
}

TEST(OutputFormat, TellsThatThereIsNoOtherBackend) {
  EXPECT_EQ(parse(R"("guided_decoding_backend": "outlines", "regex": "a")").ignored.text(),
            "guided_decoding_backend");
}

}  // namespace
}  // namespace halley
