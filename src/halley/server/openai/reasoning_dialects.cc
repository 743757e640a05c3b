// The table of reasoning dialects, and how a chat template and a prompt show theirs.
#include <algorithm>

#include "halley/server/openai/harmony.h"
#include "halley/server/openai/reasoning.h"
#include "halley/server/openai/text_marker.h"

namespace halley {
namespace {

constexpr ReasoningMarkers kThink = {"<think>", "</think>", "\n</think>\n\n"};
constexpr std::string_view kKimiSection = "<|tool_calls_section_begin|>";
constexpr std::string_view kToolCall = "<tool_call>";

constexpr auto kDialects = std::to_array<ReasoningDialect>({
    {.name = "openai_gptoss", .markers = {}, .has_channels = true},
    {.name = "mistral", .markers = {{{"[THINK]", "[/THINK]", "[/THINK]"}}}},
    {.name = "granite",
     .markers =
         {{kThink,
           {"Here is my thought process:", "Here is my response:", "\n\nHere is my response:\n\n"},
           {"Here's my thought process:", "Here's my response:", "\n\nHere's my response:\n\n"}}},
     .answer_open = "<response>",
     .answer_close = "</response>"},
    {.name = "kimi_k2", .markers = {{kThink}}, .call_marker = kKimiSection},
    {.name = "deepseek_v3", .markers = {{kThink}}},
    {.name = "deepseek_r1", .markers = {{kThink}}, .begins_inside = true},
    {.name = "glm45", .markers = {{kThink}}, .call_marker = kToolCall},
    {.name = "qwen3", .markers = {{kThink}}, .call_marker = kToolCall},
});

/// All marks of a row stand in the templates of its dialect. The first row that fits counts.
struct TemplateMarks {
  std::string_view name;
  std::array<std::string_view, 3> marks;
};
constexpr auto kTemplateMarks = std::to_array<TemplateMarks>({
    {"openai_gptoss", {"<|channel|>", "analysis"}},
    {"mistral", {"[THINK]"}},
    {"granite", {"Here is my thought process:"}},
    {"granite", {"<think>", "<response>"}},
    {"kimi_k2", {"</think>", kKimiSection}},
    // The templates of V3.1 and later read the variable `thinking`.
    {"deepseek_v3", {"</think>", "<｜Assistant｜>", "thinking"}},
    {"deepseek_r1", {"</think>", "<｜Assistant｜>"}},
    {"glm45", {"</think>", "[gMASK]"}},
    {"qwen3", {"</think>"}},
});

std::string_view without_spaces_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

// The index of the markers that the text opens and does not close again.
std::optional<size_t> open_pair(const ReasoningDialect& dialect, std::string_view text) {
  for (size_t i = 0; i < dialect.markers.size(); ++i) {
    const auto& [open, close, ending] = dialect.markers[i];
    const size_t begin = open.empty() ? std::string_view::npos : text.rfind(open);
    if (begin == std::string_view::npos) continue;
    if (text.find(close, begin) == std::string_view::npos) return i;
  }
  return std::nullopt;
}

bool closes(const ReasoningDialect& dialect, std::string_view text) {
  return std::any_of(dialect.markers.begin(), dialect.markers.end(), [&](const auto& markers) {
    return !markers.close.empty() && text.ends_with(markers.close);
  });
}

std::string header_of(std::string_view prompt) {
  const size_t begin = prompt.rfind(kHarmonyStart);
  if (begin == std::string_view::npos) return {};
  const std::string_view message = prompt.substr(begin);
  const std::string_view role = message.substr(kHarmonyStart.size());
  return role.starts_with("assistant") ? std::string(message) : std::string();
}

}  // namespace

std::span<const ReasoningDialect> reasoning_dialects() { return kDialects; }

const ReasoningDialect* find_reasoning_dialect(std::string_view name) {
  for (const ReasoningDialect& dialect : kDialects) {
    if (dialect.name == name) return &dialect;
  }
  return nullptr;
}

const ReasoningDialect* detect_reasoning_dialect(std::string_view chat_template) {
  for (const auto& [name, marks] : kTemplateMarks) {
    const bool has_all = std::all_of(marks.begin(), marks.end(), [&](std::string_view mark) {
      return chat_template.find(mark) != std::string_view::npos;
    });
    if (has_all) return find_reasoning_dialect(name);
  }
  return nullptr;
}

ReasoningStart reasoning_start(const ReasoningDialect* dialect, const ApiRequest& request,
                               std::string_view prompt) {
  if (dialect == nullptr || request.endpoint != ApiEndpoint::kChat) return {};
  ReasoningStart start = {.dialect = dialect};
  start.looks_for_calls =
      request.tool_choice && request.tool_choice->kind != ToolChoice::Kind::kNone;
  if (dialect->has_channels) {
    start.prompt_end = header_of(prompt);
    return start;
  }
  if (request.continues_final_message) {
    // Only the message that goes on matters: earlier ones may have markers as text.
    const auto& text = request.messages.back()["content"].get_ref<const std::string&>();
    const auto pair = open_pair(*dialect, text);
    if (!pair) return {};
    start.is_inside = true;
    start.pair_index = *pair;
    return start;
  }
  const std::string_view end = without_spaces_behind(prompt);
  if (closes(*dialect, end)) return {};
  for (size_t i = 0; i < dialect->markers.size(); ++i) {
    const std::string_view open = dialect->markers[i].open;
    if (open.empty() || !end.ends_with(open)) continue;
    start.is_inside = true;
    start.pair_index = i;
    return start;
  }
  start.is_inside = dialect->begins_inside;
  return start;
}

}  // namespace halley
