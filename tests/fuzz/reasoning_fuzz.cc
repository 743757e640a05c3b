// Looks for reasoning in any text, the first byte naming the dialect and whether the prompt has
// opened it. The result must not depend on how the text was cut into pieces, and text without
// reasoning must come out as it went in.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "halley/base/check.h"
#include "halley/server/openai/reasoning.h"

namespace {

halley::ReasoningOutput parse(const halley::ReasoningStart& start, std::string_view text,
                              size_t num_bytes) {
  const auto parser = halley::make_reasoning_parser(start);
  halley::ReasoningOutput output;
  for (size_t i = 0; i < text.size(); i += num_bytes) {
    parser->push(text.substr(i, num_bytes), output);
  }
  parser->finish(output);
  return output;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto dialects = halley::reasoning_dialects();
  const auto choice = static_cast<uint8_t>(data[0] - '0');
  halley::ReasoningStart start = {.dialect = &dialects[choice % dialects.size()]};
  start.looks_for_calls = choice % 3 == 0;
  start.is_inside = !start.dialect->has_channels && choice >= dialects.size();
  const halley::ReasoningOutput whole = parse(start, text, size);
  const halley::ReasoningOutput pieces = parse(start, text, 1);
  HALLEY_CHECK(whole.reasoning == pieces.reasoning, whole.reasoning, pieces.reasoning);
  HALLEY_CHECK(whole.content == pieces.content, whole.content, pieces.content);
  // Markers begin with one of these, or with words.
  const bool has_marker = text.find_first_of("<[H") != std::string_view::npos;
  const bool is_marked = !start.dialect->has_channels && !start.is_inside;
  HALLEY_CHECK(has_marker || !is_marked || whole.content == text, whole.content);
  return 0;
}
