#include "halley/server/openai/json_extent.h"

namespace halley {

std::optional<size_t> JsonExtent::find_end(std::string_view text) {
  if (end_) return end_;
  for (; num_seen_ < text.size(); ++num_seen_) {
    const char c = text[num_seen_];
    if (is_in_string_) {
      is_in_string_ = is_escaped_ || c != '"';
      is_escaped_ = !is_escaped_ && c == '\\';
    } else if (c == '"') {
      is_in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      end_ = num_seen_ + 1;
      return end_;
    }
  }
  return std::nullopt;
}

}  // namespace halley
