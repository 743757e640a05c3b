#include "halley/server/openai/reasoning.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/json/json.h"
#include "halley/server/openai/request_parser.h"

namespace halley {
namespace {

ApiRequest chat(const std::string& members = "", const std::string& last = "{}") {
  std::string messages = R"([{"role": "user", "content": "<think> is a marker"})";
  if (last != "{}") messages += ", " + last;
  return parse_request(R"({"messages": )" + messages + "]" + members + "}", ApiEndpoint::kChat, {});
}

ReasoningStart start_of(const std::string& name, const std::string& prompt,
                        const ApiRequest& request = chat()) {
  return reasoning_start(find_reasoning_dialect(name), request, prompt);
}

// "reasoning|content" of a text in these pieces.
std::string split(const ReasoningStart& start, const std::vector<std::string>& pieces) {
  ReasoningOutput output;
  const auto parser = make_reasoning_parser(start);
  if (!parser) {
    for (const std::string& piece : pieces) output.content += piece;
  } else {
    for (const std::string& piece : pieces) parser->push(piece, output);
    parser->finish(output);
  }
  return output.reasoning + "|" + output.content;
}

std::vector<std::string> cut(const std::string& text, std::mt19937& random) {
  std::vector<std::string> pieces;
  for (size_t i = 0; i < text.size(); i += pieces.back().size()) {
    pieces.push_back(text.substr(i, 1 + random() % 9));
  }
  return pieces;
}

struct Case {
  std::string text;
  std::string expected;
};

// The result must not depend on how the text was cut, also inside characters.
void expect_split(const ReasoningStart& start, const std::vector<Case>& cases) {
  std::mt19937 random(7);
  for (const Case& test : cases) {
    EXPECT_EQ(split(start, {test.text}), test.expected) << test.text;
    std::vector<std::string> bytes;
    for (const char c : test.text) bytes.emplace_back(1, c);
    EXPECT_EQ(split(start, bytes), test.expected) << test.text << " in bytes";
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(split(start, cut(test.text, random)), test.expected) << test.text;
    }
  }
}

TEST(Reasoning, StandsBeforeTheAnswerBetweenItsMarkers) {
  expect_split(start_of("qwen3", "<|im_start|>assistant\n"),
               {
                   {"<think>\nOne, tw\xC3\xB6.\n</think>\n\nThree.", "One, tw\xC3\xB6.|Three."},
                   {"\n<think></think>\nThree. ", "|Three. "},
                   {"<think>a < b </thin> c</think>d</think>e", "a < b </thin> c|d</think>e"},
                   {"<think>It never ends </", "It never ends </|"},
                   {"No thoughts. <think>x</think>", "|No thoughts. <think>x</think>"},
                   {" \n<thing>", "| \n<thing>"},
                   {"<thi", "|<thi"},
                   {"", "|"},
               });
}

TEST(Reasoning, TheTemplateMayOpenAndCloseIt) {
  const ReasoningStart inside = start_of("qwen3", "<|im_start|>assistant\n<think>\n");
  expect_split(inside, {{"One.\n</think>\n\nTwo.", "One.|Two."},
                        {"<think>\nOne.</think>Two.", "One.|Two."},  // the model repeats the marker
                        {"</think>Two.", "|Two."},
                        {"One", "One|"}});
  const ReasoningStart closed = start_of("qwen3", "assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(closed.dialect, nullptr);
  expect_split(closed, {{"Two.</think>", "|Two.</think>"}});
}

TEST(Reasoning, AModelThatLeavesTheMarkerOutBeginsWithIt) {
  expect_split(start_of("deepseek_r1", "<｜Assistant｜>"),
               {{"One.\n</think>\nTwo.", "One.|Two."}, {"<think>\nOne.</think>Two.", "One.|Two."}});
  expect_split(start_of("deepseek_v3", "<｜Assistant｜></think>"), {{"Two.", "|Two."}});
}

TEST(Reasoning, ACallEndsWhatTheModelDoesNotClose) {
  const std::string text = "One.\n<tool_call>{}</tool_call>";
  const ApiRequest with_tools =
      chat(R"(, "tools": [{"type": "function", "function": {"name": "f"}}])");
  expect_split(start_of("qwen3", "<think>\n", with_tools),
               {{text, "One.|<tool_call>{}</tool_call>"}});
  expect_split(start_of("qwen3", "<think>\n"), {{text, text + "|"}});
}

TEST(Reasoning, GraniteSaysItInWordsOrTags) {
  const ReasoningStart start = start_of("granite", "assistant<|end_of_role|>");
  expect_split(
      start, {
                 {"Here is my thought process:\n One.\n\nHere is my response:\n Two.", "One.|Two."},
                 {"Here's my thought process: One. Here's my response: Two.", "One.|Two."},
                 {"<think>One.</think>\n<response>Two.</response>", "One.|Two."},
                 {"<think>One.</think>Two.</response>", "One.|Two.</response>"},
                 {"<think>One.</think><resp", "One.|<resp"},
                 {"Here is my answer.", "|Here is my answer."},
             });
}

TEST(Reasoning, MagistralHasMarkersOfItsOwn) {
  expect_split(start_of("mistral", "[/INST]"),
               {{"[THINK]One.[/THINK]Two.", "One.|Two."}, {"[TOOL_CALLS]f{}", "|[TOOL_CALLS]f{}"}});
}

TEST(Reasoning, HarmonyHasChannels) {
  const ReasoningStart start = start_of("openai_gptoss", "<|end|><|start|>assistant");
  expect_split(
      start,
      {
          {"<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>final<|message|>"
           "Two.<|return|>",
           "One.|Two."},
          {"<|channel|>final<|message|>Two.", "|Two."},
          {"<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>"
           "B<|end|><|start|>assistant<|channel|>commentary<|message|>C<|end|><|start|>assistant"
           "<|channel|>final<|message|>D",
           "A\nB|C\nD"},
          {"<|channel|>analysis<|message|>A<|end|><|start|>assistant to=functions.f<|channel|>"
           "commentary json<|message|>{}<|call|>",
           "A|<|channel|>commentary to=functions.f<|message|>{}<|call|>"},
          {"<|channel|>analysis<|message|>A<|channel|>final<|message|>B", "A|B"},  // no end
          {"<|channel|>analysis<|message|>cut <|en", "cut <|en|"},
          {"<|channel|>analysis<|message|>A<|end|><|start|>assistant<|chan", "A|"},
          {"Hello <|end|>", "|Hello "},
          {"<|channel|>other<|message|>x", "|<|channel|>other<|message|>x"},
      });
  const ReasoningStart opened =
      start_of("openai_gptoss", "<|start|>assistant<|channel|>final<|message|>");
  expect_split(opened, {{"Two.", "|Two."}});
}

TEST(Reasoning, LongWhiteSpaceIsText) {
  const std::string spaces(1000, ' ');
  expect_split(start_of("qwen3", "<think>"),
               {{"a" + spaces + "</think>b", "a" + spaces.substr(64) + "|b"},
                {"a" + spaces + "c</think>b", "a" + spaces + "c|b"}});
}

// Text made of markers, their beginnings and other characters.
TEST(Reasoning, DoesNotDependOnThePieces) {
  std::mt19937 random(11);
  const std::vector<std::string> parts = {"<think>",
                                          "</think>",
                                          "<",
                                          "/",
                                          "think>",
                                          " ",
                                          "\n",
                                          "a",
                                          "\xE2\x82\xAC",
                                          "[THINK]",
                                          "[/THINK]",
                                          "Here is my thought process:",
                                          "Here is my response:",
                                          "<response>",
                                          "</response>",
                                          "<tool_call>",
                                          "<|channel|>",
                                          "<|message|>",
                                          "<|end|>",
                                          "<|start|>",
                                          "assistant",
                                          "analysis",
                                          "final",
                                          "commentary",
                                          " to=functions.f",
                                          "<|call|>"};
  for (const ReasoningDialect& dialect : reasoning_dialects()) {
    for (int i = 0; i < 200; ++i) {
      std::string text;
      for (size_t n = random() % 12; n > 0; --n) text += parts[random() % parts.size()];
      ReasoningStart start = {.dialect = &dialect};
      start.is_inside = !dialect.has_channels && random() % 2 == 0;
      const std::string whole = split(start, {text});
      for (int j = 0; j < 5; ++j) {
        EXPECT_EQ(split(start, cut(text, random)), whole) << dialect.name << ": " << text;
      }
    }
  }
}

TEST(Reasoning, AFinalMessageThatGoesOnMayBeInIt) {
  const char* open = R"({"role": "assistant", "content": "<think>One"})";
  const char* closed = R"({"role": "assistant", "content": "<think>One</think>Two"})";
  const std::string go_on = R"(, "continue_final_message": true, "add_generation_prompt": false)";
  EXPECT_TRUE(start_of("qwen3", "x", chat(go_on, open)).is_inside);
  EXPECT_EQ(start_of("qwen3", "x", chat(go_on, closed)).dialect, nullptr);
}

TEST(Reasoning, IsThatOfChatsAlone) {
  const ApiRequest request = parse_request(R"({"prompt": "a"})", ApiEndpoint::kCompletions, {});
  EXPECT_EQ(start_of("qwen3", "<think>", request).dialect, nullptr);
  EXPECT_EQ(make_reasoning_parser({}), nullptr);
}

TEST(ReasoningCounter, CountsTokensWithTheirMarkers) {
  ReasoningCounter counter(start_of("qwen3", "assistant\n"));
  for (const char* text : {"<think>", "\n", "One", "</", "think>", "\n\n", "Two"}) {
    counter.push(text, /*has_token=*/true);
  }
  counter.push("", /*has_token=*/false);
  EXPECT_EQ(counter.num_tokens(), 5);
  ReasoningCounter none({});
  none.push("<think>", true);
  EXPECT_EQ(none.num_tokens(), 0);
}

TEST(Reasoning, TheEndingOfABudgetLeadsToTheAnswer) {
  const auto end_now = [](const std::string& name, const std::string& prompt,
                          const std::string& text) {
    const auto parser = make_reasoning_parser(start_of(name, prompt));
    ReasoningOutput output;
    parser->push(text, output);
    const std::string ending(parser->ending());
    parser->push(ending, output);
    EXPECT_EQ(parser->phase(), ReasoningPhase::kAnswer) << name << ": " << ending;
    parser->push("Two.", output);
    parser->finish(output);
    return output.reasoning + "|" + output.content;
  };
  EXPECT_EQ(end_now("qwen3", "", "<think>One"), "One|Two.");
  EXPECT_EQ(end_now("mistral", "", "[THINK]One"), "One|Two.");
  EXPECT_EQ(end_now("granite", "", "Here is my thought process: One"), "One|Two.");
  EXPECT_EQ(end_now("openai_gptoss", "<|start|>assistant", ""), "|Two.");
  EXPECT_EQ(end_now("openai_gptoss", "<|start|>assistant", "<|channel|>analysis<|message|>One"),
            "One|Two.");
  EXPECT_EQ(
      end_now("openai_gptoss", "<|start|>assistant", "<|channel|>analysis<|message|>One<|end|>"),
      "One|Two.");
}

TEST(Reasoning, PublishedTemplatesShowTheirDialect) {
  const auto name_in = [](const std::string& name) {
    const std::string path = str(HALLEY_SOURCE_DIR, "/testdata/chat_templates/", name, ".json");
    const Json json = parse_json(read_text_file(path, 1 << 22), path);
    const auto* dialect = detect_reasoning_dialect(json.at("template").get<std::string>());
    return dialect == nullptr ? std::string("none") : std::string(dialect->name);
  };
  EXPECT_EQ(name_in("Qwen-Qwen3-0.6B"), "qwen3");
  EXPECT_EQ(name_in("deepseek-ai-DeepSeek-R1-Distill-Llama-8B"), "deepseek_r1");
  EXPECT_EQ(name_in("Qwen-Qwen2.5-7B-Instruct"), "none");
  EXPECT_EQ(name_in("mistralai-Mistral-Nemo-Instruct-2407"), "none");
}

// Templates that have what their families' have.
TEST(Reasoning, TemplatesOfOtherFamiliesShowTheirDialect) {
  const auto name_in = [](const std::string& source) {
    const auto* dialect = detect_reasoning_dialect(source);
    return dialect == nullptr ? std::string("none") : std::string(dialect->name);
  };
  EXPECT_EQ(name_in("<|start|>assistant<|channel|>analysis<|message|>"), "openai_gptoss");
  EXPECT_EQ(name_in("[SYSTEM_PROMPT]...[THINK]"), "mistral");
  EXPECT_EQ(name_in("Write 'Here is my thought process:' before"), "granite");
  EXPECT_EQ(name_in("<think></think> <response></response>"), "granite");
  EXPECT_EQ(name_in("<|tool_calls_section_begin|></think>"), "kimi_k2");
  EXPECT_EQ(name_in("<｜Assistant｜>{% if thinking %}<think>{% else %}</think>"), "deepseek_v3");
  EXPECT_EQ(name_in("[gMASK]<sop><think></think>"), "glm45");
  EXPECT_EQ(find_reasoning_dialect("none"), nullptr);
}

}  // namespace
}  // namespace halley
