#include "halley/server/openai/tool_call_text.h"

#include <utility>

namespace halley {

HeldText::Content HeldText::take_content(std::string_view new_text,
                                         std::span<const std::string_view> markers,
                                         ToolOutput& output) {
  const size_t num_before = text.size();
  text += new_text;
  const auto found = find_marker(text, markers);
  size_t end = found ? found->start : text.size() - num_bytes_of_markers(text, markers);
  end -= num_trailing_spaces(std::string_view(text).substr(0, end));
  output.content.append(text, 0, end);
  if (!found) {
    text.erase(0, end);
    return {new_text.size(), {}};
  }
  const size_t num_taken = found->start + found->marker.size();
  text = text.substr(end, num_taken - end);
  return {num_taken - num_before, found->marker};
}

std::string_view HeldText::behind(size_t start) const {
  std::string_view behind = std::string_view(text).substr(start);
  behind.remove_prefix(num_leading_spaces(behind));
  return behind;
}

std::string HeldText::give_up(ToolOutput& output) {
  const std::string held = std::exchange(text, {});
  output.content.append(held, 0, num_opening);
  return held.substr(num_opening);
}

}  // namespace halley
