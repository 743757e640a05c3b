#include "halley/server/openai/request_parser.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ApiEndpoint kCompletions = ApiEndpoint::kCompletions;
constexpr ApiEndpoint kChat = ApiEndpoint::kChat;

RequestRules rules() { return {.sampling = {}, .vocab_size = 100}; }

ApiRequest parse(ApiEndpoint endpoint, const std::string& body) {
  return parse_request(body, endpoint, rules());
}

ApiRequest completion(const std::string& members) {
  return parse(kCompletions, R"({"prompt": "hi")" + members + "}");
}

ApiRequest chat(const std::string& members) {
  return parse(kChat, R"({"messages": [{"role": "user", "content": "hi"}])" + members + "}");
}

constexpr const char* kTools = R"(, "tools": [{"type": "function", "function": {"name": "f",
    "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}}}])";

struct BadCase {
  ApiEndpoint endpoint;
  std::string body;
  std::string param;
  std::string message;  // a part of it
};

// The error of a request with these members and the required ones.
BadCase bad_completion(const std::string& members, const std::string& param,
                       const std::string& message) {
  return {kCompletions, R"({"prompt": "hi", )" + members + "}", param, message};
}
BadCase bad_chat(const std::string& members, const std::string& param, const std::string& message) {
  return {kChat, R"({"messages": [{"role": "user", "content": "hi"}], )" + members + "}", param,
          message};
}
BadCase bad_message(const std::string& message, const std::string& param, const std::string& text) {
  return {kChat, R"({"messages": [)" + message + "]}", param, text};
}

void expect_rejected(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    try {
      parse(bad.endpoint, bad.body);
      ADD_FAILURE() << "was taken: " << bad.body;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.details().status, 400) << bad.body;
      EXPECT_EQ(error.details().param, bad.param) << bad.body << "\n" << error.what();
      EXPECT_THAT(error.what(), HasSubstr(bad.message)) << bad.body;
    }
  }
}

TEST(RequestParser, RejectsWhatIsNoJsonObject) {
  expect_rejected({
      {kCompletions, "", "", "body: not valid JSON"},
      {kCompletions, "{", "", "body: not valid JSON"},
      {kCompletions, "[]", "", "body: expected a JSON object, got an array."},
      {kCompletions, "\"x\"", "", "expected a JSON object, got a string"},
      {kCompletions, R"({"prompt": "a"} x)", "", "not valid JSON at byte"},
      {kCompletions, R"({"prompt": "a", "prompt": "b"})", "", "duplicate key \"prompt\""},
      {kCompletions, "{\"prompt\": \"\xFF\"}", "", "not valid JSON"},
      {kCompletions, R"({"prompt": "\ud800"})", "", "not valid JSON"},
      {kCompletions, R"({"prompt": "a", "seed": NaN})", "", "not valid JSON"},
      {kCompletions, R"({"prompt": "a", "temperature": 1e999})", "", "body: "},
      {kCompletions, R"({"prompt": )" + std::string(100, '[') + std::string(100, ']') + "}", "",
       "64"},
  });
}

TEST(RequestParser, NamesUnknownAndMissingFields) {
  expect_rejected({
      {kCompletions, "{}", "prompt", "prompt: expected a value, got nothing. The field is req"},
      {kCompletions, R"({"prompt": null})", "prompt", "required"},
      {kChat, "{}", "messages", "messages: expected a value"},
      {ApiEndpoint::kDetokenize, "{}", "tokens", "tokens: expected a value"},
      {ApiEndpoint::kTokenize, "{}", "prompt", "one prompt, or messages"},
      {ApiEndpoint::kTokenize, R"({"prompt": ["a", "b"]})", "prompt", "one prompt, or messages"},
      bad_completion(R"("max_token": 3)", "\"max_token\"", "got \"max_token\""),
      bad_completion(R"("messages": [])", "\"messages\"", "expected the fields of openapi.json"),
      bad_chat(R"("echo": true)", "\"echo\"", "expected the fields of openapi.json"),
  });
}

TEST(RequestParser, RejectsFieldsOfOtherServersUnlessTheyAskForNothing) {
  expect_rejected({
      bad_completion(R"("suffix": "x")", "suffix", "suffix: expected nothing or \"\""),
      bad_completion(R"("best_of": 2)", "best_of", "best_of: expected nothing or 1"),
      bad_completion(R"("use_beam_search": true)", "use_beam_search", "no beam search"),
      bad_chat(R"("chat_template": "x")", "chat_template", "--chat-template"),
      bad_chat(R"("functions": [{}])", "functions", "Use tools."),
      bad_chat(R"("modalities": ["audio"])", "modalities", "text alone"),
  });
  completion(R"(, "suffix": null, "best_of": 1, "store": false, "metadata": {"a": "b"})");
  chat(R"(, "functions": [], "modalities": ["text"], "service_tier": "auto")");
}

TEST(RequestParser, IgnoresUnknownFieldsWhereTheServerSaysSo) {
  RequestRules lenient = rules();
  lenient.ignores_unknown_fields = true;
  EXPECT_NO_THROW(parse_request(R"({"prompt": "a", "x": 1})", kCompletions, lenient));
}

TEST(RequestParser, RejectsNumbersOutOfRange) {
  expect_rejected({
      bad_completion(R"("temperature": 2.1)", "temperature",
                     "temperature: expected 0 to 2, got 2.1."),
      bad_completion(R"("temperature": -0.1)", "temperature", "expected 0 to 2"),
      bad_completion(R"("temperature": "1")", "temperature", "expected a number, got a string"),
      bad_completion(R"("top_p": 0)", "top_p", "expected above 0 and at most 1, got 0."),
      bad_completion(R"("min_p": 1.5)", "min_p", "expected 0 to 1"),
      bad_completion(R"("top_k": -2)", "top_k", "expected at least -1, got -2."),
      bad_completion(R"("top_k": 1.5)", "top_k", "expected an integer, got the number 1.5."),
      bad_completion(R"("n": 0)", "n", "expected 1 to 128, got 0."),
      bad_completion(R"("n": 1000000000000000000)", "n", "expected 1 to 128"),
      bad_completion(R"("n": 18446744073709551615)", "n", "expected 1 to 128"),
      bad_completion(R"("n": true)", "n", "expected an integer, got true."),
      bad_completion(R"("max_tokens": -1)", "max_tokens", "expected at least 0, got -1."),
      bad_completion(R"("max_tokens": 0)", "max_tokens", "0 is for echo"),
      bad_completion(R"("max_tokens": 2147483648)", "max_tokens", "got 2147483648"),
      bad_completion(R"("max_tokens": 3, "min_tokens": 4)", "min_tokens", "at most max_tokens (3)"),
      bad_completion(R"("seed": 9223372036854775808)", "seed", "expected 64 bits"),
      bad_completion(R"("presence_penalty": 3)", "presence_penalty", "expected -2 to 2"),
      bad_completion(R"("frequency_penalty": -3)", "frequency_penalty", "expected -2 to 2"),
      bad_completion(R"("repetition_penalty": 0)", "repetition_penalty", "expected above 0"),
      bad_completion(R"("logprobs": 21)", "logprobs", "expected 0 to 20, got 21."),
      bad_completion(R"("logprobs": true)", "logprobs", "expected an integer, got true."),
      bad_chat(R"("logprobs": 2)", "logprobs", "expected true or false, got an integer."),
      bad_chat(R"("top_logprobs": 2)", "top_logprobs", "expected logprobs to be true"),
      bad_completion(R"("timeout": 0)", "timeout", "expected above 0 and at most 86400"),
      bad_completion(R"("priority": 5000)", "priority", "expected -1000 to 1000"),
      bad_completion(R"("cache_salt": "")", "cache_salt", "expected 1 to 256 bytes, got one of 0"),
      bad_completion(R"("stream": "yes")", "stream", "expected true or false, got a string."),
      bad_chat(R"("max_tokens": 3, "max_completion_tokens": 4)", "max_completion_tokens",
               "Send one of them"),
  });
}

TEST(RequestParser, RejectsListsThatAreTooLongOrWrong) {
  std::string biases;
  for (int i = 0; i < 1025; ++i) biases += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
  std::string prompts = "\"a\"";
  for (int i = 0; i < 1024; ++i) prompts += ",\"a\"";
  std::string stops = "\"a\"";
  for (int i = 0; i < 64; ++i) stops += ",\"a\"";
  expect_rejected({
      {kCompletions, R"({"prompt": 5})", "prompt", "expected a string or a list of token ids"},
      {kCompletions, R"({"prompt": []})", "prompt", "expected at least one token id, got none."},
      {kCompletions, R"({"prompt": [[]]})", "prompt[0]", "expected at least one token id"},
      {kCompletions, R"({"prompt": [1, "a"]})", "prompt[1]", "expected a token id of 0 to 99"},
      {kCompletions, R"({"prompt": [1, 100]})", "prompt[1]", "0 to 99, got 100."},
      {kCompletions, R"({"prompt": [-1]})", "prompt[0]", "0 to 99, got -1."},
      {kCompletions, R"({"prompt": [1.0]})", "prompt[0]", "0 to 99, got 1.0."},
      {kCompletions, R"({"prompt": ["a", 1]})", "prompt[1]", "expected a string or a list"},
      {kCompletions, R"({"prompt": [[1], [18446744073709551615]]})", "prompt[1][0]", "0 to 99"},
      {kCompletions, R"({"prompt": [)" + prompts + "]}", "prompt", "at most 1024 entries"},
      {kCompletions, R"({"prompt": ["a","a","a","a","a","a","a","a","a"], "n": 128})", "n",
       "at most 1024, got 1152."},
      bad_completion(R"("stop": [""])", "stop", "expected texts of at least 1 byte, got an empty"),
      bad_completion("\"stop\": [" + stops + "]", "stop", "at most 64 entries, got 65."),
      bad_completion("\"stop\": \"" + std::string(4097, 'a') + "\"", "stop",
                     "at most 4096 bytes in all texts, got 4097."),
      bad_completion(R"("stop": [1])", "stop[0]", "stop[0]: expected a string, got an integer."),
      bad_completion(R"("stop": {})", "stop", "expected a string or a list of strings"),
      bad_completion(R"("stop_token_ids": [100])", "stop_token_ids[0]", "got 100."),
      bad_completion(R"("logit_bias": {"100": 1})", "logit_bias", "0 to 99 as names, got \"100\""),
      bad_completion(R"("logit_bias": {"1x": 1})", "logit_bias", "got \"1x\""),
      bad_completion(R"("logit_bias": {"1": 101})", "logit_bias", "-100 to 100, got 101."),
      bad_completion(R"("logit_bias": {"1": null})", "logit_bias", "-100 to 100, got null."),
      bad_completion(R"("logit_bias": {"1": 1, "01": 1})", "logit_bias", "got token 1 twice"),
      bad_completion(R"("logit_bias": {)" + biases + "}", "logit_bias", "at most 1024 entries"),
      bad_completion(R"("stream_options": {})", "stream_options", "expected stream to be true"),
      bad_completion(R"("stream": true, "stream_options": {"x": 1})", "stream_options.\"x\"",
                     "expected no such member"),
      bad_completion(R"("stream": true, "stream_options": {"include_usage": 1})",
                     "stream_options.include_usage", "expected true or false, got an integer."),
      {ApiEndpoint::kDetokenize, R"({"tokens": [100]})", "tokens[0]", "0 to 99, got 100."},
  });
}

TEST(RequestParser, RejectsMessagesThatAreWrong) {
  expect_rejected({
      {kChat, R"({"messages": []})", "messages", "expected a list of 1 to 4096 messages, got 0"},
      {kChat, R"({"messages": {}})", "messages", "got an object."},
      bad_message("5", "messages[0]", "messages[0]: expected an object, got an integer."),
      bad_message(R"({"content": "x"})", "messages[0].role", "expected a string, got nothing."),
      bad_message(R"({"role": "root", "content": "x"})", "messages[0].role", "got \"root\"."),
      bad_message(R"({"role": "user"})", "messages[0].content", "got nothing."),
      bad_message(R"({"role": "user", "content": null})", "messages[0].content", "got null."),
      bad_message(R"({"role": "user", "content": 5})", "messages[0].content", "got an integer."),
      bad_message(R"({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})",
                  "messages[0].content[0]", "images, audio and files are not supported"),
      bad_message(R"({"role": "user", "content": [{"text": "a"}]})", "messages[0].content[0]",
                  "got no type"),
      bad_message(R"({"role": "user", "content": [{"type": "text"}]})",
                  "messages[0].content[0].text", "expected a string, got nothing."),
      bad_message(R"({"role": "user", "content": "a", "images": ["b"]})", "messages[0].images",
                  "it is not supported. The model reads text alone."),
      bad_message(R"({"role": "user", "content": "a", "tool_calls": [{}]})",
                  "messages[0].tool_calls", "in a message of role user"),
      bad_message(R"({"role": "assistant", "tool_calls": [{}]})",
                  "messages[0].tool_calls[0].function", "expected an object, got nothing."),
      bad_message(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",
                      "arguments": "{"}}]})",
                  "messages[0].tool_calls[0].function.arguments", "not valid JSON"),
      bad_message(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",
                      "arguments": "[]"}}]})",
                  "messages[0].tool_calls[0].function.arguments", "expected an object"),
  });
}

TEST(RequestParser, RejectsToolsAndFormatsThatAreWrong) {
  const std::string f = R"({"type": "function", "function": {"name": "f"}})";
  expect_rejected({
      bad_chat(R"("tools": {})", "tools", "expected a list of at most 128 tools, got an object."),
      bad_chat(R"("tools": [{"type": "web"}])", "tools[0].type", "expected \"function\""),
      bad_chat(R"("tools": [{"type": "function", "function": {"name": "a b"}}])",
               "tools[0].function.name", "letters, digits, underscores or dashes"),
      bad_chat(R"("tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}])",
               "tools[0].function.parameters", "expected an object, got an integer."),
      bad_chat("\"tools\": [" + f + "," + f + "]", "tools[1].function.name", "\"f\" twice"),
      bad_chat(R"("tool_choice": "required")", "tool_choice", "expected tools with it, got none."),
      bad_chat("\"tools\": [" + f + R"(], "tool_choice": "any")", "tool_choice", "got \"any\""),
      bad_chat("\"tools\": [" + f +
                   R"(], "tool_choice": {"type": "function", "function": {"name": "g"}})",
               "tool_choice", "one of the tools, got \"g\""),
      bad_chat("\"tools\": [" + f +
                   R"(], "tool_choice": "required", "response_format": {"type": "json_object"})",
               "response_format", "expected none where tool_choice demands a call"),
      bad_chat(R"("response_format": {"type": "xml"})", "response_format.type", "got \"xml\""),
      bad_chat(R"("response_format": {"type": "json_schema"})", "response_format.json_schema",
               "expected an object, got nothing."),
      bad_chat(R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})",
               "response_format.json_schema.schema", "expected an object, got nothing."),
      bad_chat(R"("continue_final_message": true, "add_generation_prompt": true)",
               "continue_final_message", "add_generation_prompt to be false"),
      bad_chat(R"("chat_template_kwargs": {"messages": []})", "chat_template_kwargs",
               "other than \"messages\""),
  });
}

TEST(RequestParser, TakesEveryKindOfPrompt) {
  EXPECT_EQ(std::get<std::string>(parse(kCompletions, R"({"prompt": ""})").prompts[0]), "");
  EXPECT_EQ(parse(kCompletions, R"({"prompt": ["a", "b"]})").prompts.size(), 2u);
  const ApiRequest ids = parse(kCompletions, R"({"prompt": [1, 2]})");
  ASSERT_EQ(ids.prompts.size(), 1u);
  EXPECT_THAT(std::get<std::vector<int32_t>>(ids.prompts[0]), ElementsAre(1, 2));
  const ApiRequest lists = parse(kCompletions, R"({"prompt": [[1], [2, 3]], "n": 2})");
  EXPECT_THAT(std::get<std::vector<int32_t>>(lists.prompts[1]), ElementsAre(2, 3));
  EXPECT_EQ(lists.num_sequences(), 4);
}

TEST(RequestParser, StoresWhatTheFieldsSay) {
  const ApiRequest request = completion(R"(, "model": "m", "max_tokens": 7, "temperature": 0,
      "top_p": 0.5, "top_k": -1, "min_p": 0.1, "n": 3, "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": null},
      "stop": "end", "seed": -1, "logit_bias": {"7": -100}, "presence_penalty": 1,
      "frequency_penalty": -1, "repetition_penalty": 1.5, "logprobs": 5, "echo": true,
      "min_tokens": 2, "ignore_eos": true, "stop_token_ids": [3], "skip_special_tokens": false,
      "include_stop_str_in_output": true, "priority": -3, "cache_salt": "s", "timeout": 1.5,
      "user": "u", "add_special_tokens": false)");
  const SamplingParams& sampling = request.sampling;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_p, 0.5);
  EXPECT_EQ(sampling.top_k, -1);
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_EQ(request.n, 3);
  EXPECT_TRUE(request.is_stream);
  EXPECT_TRUE(request.includes_usage);
  EXPECT_FALSE(request.has_continuous_usage);
  EXPECT_THAT(sampling.stop, ElementsAre("end"));
  EXPECT_EQ(sampling.seed, UINT64_MAX);
  EXPECT_EQ(sampling.logit_bias.at(7), -100);
  EXPECT_EQ(sampling.presence_penalty, 1);
  EXPECT_EQ(sampling.frequency_penalty, -1);
  EXPECT_EQ(sampling.repetition_penalty, 1.5);
  EXPECT_EQ(request.num_completion_logprobs, 5);
  EXPECT_TRUE(request.has_echo);
  EXPECT_EQ(sampling.min_tokens, 2);
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_THAT(sampling.stop_token_ids, ElementsAre(3));
  EXPECT_FALSE(sampling.skip_special_tokens);
  EXPECT_TRUE(sampling.include_stop_str_in_output);
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.timeout_s, 1.5);
  EXPECT_EQ(request.adds_special_tokens, false);
}

TEST(RequestParser, NullIsAsIfAFieldWereNotThere) {
  const ApiRequest request = completion(R"(, "temperature": null, "stop": null, "n": null)");
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.n, 1);
}

TEST(RequestParser, ReadsPrecisionAndSlo) {
  for (const PrecisionMode mode :
       {PrecisionMode::kFull, PrecisionMode::kLow, PrecisionMode::kAuto}) {
    EXPECT_EQ(completion(str(R"(, "precision": ")", name_of(mode), "\"")).precision, mode);
  }
  EXPECT_EQ(chat("").precision, std::nullopt);
  EXPECT_TRUE(chat("").slo.is_empty());
  EXPECT_EQ(chat(R"(, "slo": {"ttft_ms": 200, "tpot_ms": 62.5})").slo,
            (Slo{.ttft = 0.2, .tpot = 0.0625}));
  EXPECT_EQ(completion(R"(, "slo": {"ttft_ms": null, "tpot_ms": 86400000})").slo,
            Slo{.tpot = 86400});
}

TEST(RequestParser, RejectsPrecisionsAndLimitsThatThereAreNot) {
  expect_rejected({
      bad_completion(R"("precision": "f16")", "precision",
                     "precision: expected full, low or auto, got \"f16\"."),
      bad_completion(R"("precision": "")", "precision", "expected 1 to 16 bytes"),
      bad_chat(R"("precision": 8)", "precision", "expected a string, got an integer."),
      bad_chat(R"("slo": "ttft=200ms")", "slo", "slo: expected an object, got a string."),
      bad_chat(R"("slo": {"ttft_ms": 0})", "slo.ttft_ms",
               "slo.ttft_ms: expected milliseconds above 0 and at most 86400000, got 0."),
      bad_chat(R"("slo": {"tpot_ms": -1e-3})", "slo.tpot_ms", "got -0.001."),
      bad_chat(R"("slo": {"tpot_ms": 86400001})", "slo.tpot_ms", "got 86400001."),
      bad_chat(R"("slo": {"tpot_ms": "33ms"})", "slo.tpot_ms", "got a string."),
      bad_chat(R"("slo": {"e2el_ms": 1000})", "slo.e2el_ms", "Use ttft_ms and tpot_ms"),
      bad_chat(R"("slo": {"ttft": 1})", "slo.ttft", "Use ttft_ms, in milliseconds."),
      bad_chat(R"("slo": {"tpot_m": 1})", "slo.\"tpot_m\"", "Did you mean 'tpot_ms'?"),
  });
}

TEST(RequestParser, TakesTheServersDefaultsOfSampling) {
  RequestRules with_defaults = rules();
  with_defaults.sampling.temperature = 0.6;
  with_defaults.sampling.top_k = 20;
  const ApiRequest request =
      parse_request(R"({"prompt": "a", "top_k": 3})", kCompletions, with_defaults);
  EXPECT_EQ(request.sampling.temperature, 0.6);
  EXPECT_EQ(request.sampling.top_k, 3);
}

TEST(RequestParser, ConvertsMessagesForTemplates) {
  const ApiRequest request = parse(kChat, R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
       "name": "me"},
      {"role": "assistant", "content": null, "refusal": null, "annotations": [], "tool_calls": [
        {"id": "1", "type": "function",
         "function": {"name": "f", "arguments": "{\"z\":1,\"a\":2}"}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
      {"role": "tool", "tool_call_id": "1", "content": "sunny"}]})");
  EXPECT_EQ(request.messages[0].dump(), R"({"role":"user","content":"a\nb","name":"me"})");
  // The order of members stays.
  EXPECT_EQ(request.messages[1]["tool_calls"][0]["function"].dump(),
            R"({"name":"f","arguments":{"z":1,"a":2}})");
  EXPECT_EQ(request.messages[1]["tool_calls"][1]["function"]["arguments"].dump(), "{}");
  EXPECT_EQ(request.messages[1]["content"], "");
  EXPECT_EQ(request.messages[2]["tool_call_id"], "1");
}

TEST(RequestParser, SettlesToolChoice) {
  using Kind = ToolChoice::Kind;
  EXPECT_EQ(chat("").tool_choice->kind, Kind::kNone);
  EXPECT_EQ(chat(R"(, "tool_choice": "auto")").tool_choice->kind, Kind::kNone);
  EXPECT_EQ(chat(kTools).tool_choice->kind, Kind::kAuto);
  const std::string with_tools = kTools;
  EXPECT_EQ(chat(with_tools + R"(, "tool_choice": "none")").tool_choice->kind, Kind::kNone);
  EXPECT_EQ(chat(with_tools + R"(, "tool_choice": "required")").tool_choice->kind, Kind::kRequired);
  const ApiRequest named =
      chat(with_tools + R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})");
  EXPECT_EQ(named.tool_choice->kind, Kind::kNamed);
  EXPECT_EQ(named.tool_choice->name, "f");
  EXPECT_EQ(named.tools[0].parameters.dump(), R"({"type":"object","properties":{"z":{},"a":{}}})");
}

TEST(RequestParser, ContinueFinalMessageNeedsNoGenerationPrompt) {
  const ApiRequest request = chat(R"(, "continue_final_message": true)");
  EXPECT_FALSE(request.adds_generation_prompt);
  EXPECT_TRUE(request.continues_final_message);
}

TEST(RequestParser, ReadsResponseFormats) {
  using Kind = OutputFormat::Kind;
  EXPECT_EQ(chat(R"(, "response_format": {"type": "json_object"})").output_format.kind,
            Kind::kJsonObject);
  const ApiRequest request = chat(R"(, "response_format": {"type": "json_schema",
      "json_schema": {"name": "x", "strict": true, "schema": {"type": "integer"}}})");
  EXPECT_EQ(request.output_format.kind, Kind::kJsonSchema);
  EXPECT_EQ(request.output_format.schema.dump(), R"({"type":"integer"})");
}

TEST(ApiError, IsAnObjectOfOpenAi) {
  EXPECT_EQ(invalid_field("n", "n: no").body(),
            R"({"error":{"message":"n: no","type":"invalid_request_error","param":"n",)"
            R"("code":null}})");
  EXPECT_EQ(overloaded("full", 1).details().status, 503);
}

TEST(RequestParser, ReadsListsOfTokensAndScoresOfPrompts) {
  const ApiRequest request = completion(
      R"(, "bad_words": ["a b", "c"], "prompt_logprobs": 3, "return_token_ids": true,
         "truncate_prompt_tokens": -1)");
  EXPECT_THAT(request.bad_words, ElementsAre("a b", "c"));
  EXPECT_EQ(request.num_prompt_alternatives(), 3);
  EXPECT_TRUE(request.returns_token_ids);
  EXPECT_EQ(request.truncates_prompt_to, -1);
  EXPECT_THAT(chat(R"(, "allowed_token_ids": [7, 99])").allowed_token_ids, ElementsAre(7, 99));
  EXPECT_TRUE(completion(R"(, "bad_words": [])").bad_words.empty());
  EXPECT_FALSE(completion("").num_prompt_alternatives());
}

TEST(RequestParser, RejectsListsOfTokensThatCannotHold) {
  expect_rejected({
      bad_completion(R"("allowed_token_ids": [])", "allowed_token_ids", "1 to 100"),
      bad_completion(R"("allowed_token_ids": [100])", "allowed_token_ids[0]", "got 100"),
      bad_completion(R"("bad_words": "a")", "bad_words", "a list"),
      bad_completion(R"("bad_words": ["a", ""])", "bad_words[1]", "got 0"),
      bad_completion(R"("bad_words": ["a"], "allowed_token_ids": [1])", "bad_words",
                     "allowed_token_ids"),
      bad_completion(R"("bad_words": ["a"], "guided_regex": "a")", "bad_words", "guided_regex"),
      bad_chat(str(R"("allowed_token_ids": [1], "tool_choice": "required")", kTools),
               "allowed_token_ids", "tool_choice"),
      bad_completion(R"("prompt_logprobs": 1, "stream": true)", "prompt_logprobs", "stream"),
      bad_completion(R"("prompt_logprobs": 1, "echo": true)", "prompt_logprobs", "echo"),
      bad_completion(R"("prompt_logprobs": 21)", "prompt_logprobs", "0 to 20"),
      bad_completion(R"("truncate_prompt_tokens": 0)", "truncate_prompt_tokens", "got 0"),
      bad_completion(R"("truncate_prompt_tokens": -2)", "truncate_prompt_tokens", "got -2"),
  });
}

}  // namespace
}  // namespace halley
