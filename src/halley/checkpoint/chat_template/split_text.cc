#include "halley/checkpoint/chat_template/split_text.h"

#include <algorithm>

#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t num_splits_max, bool from_right) {
  std::vector<size_t> found;
  for (size_t at = find_text(text, separator); at != std::string_view::npos;
       at = find_text(text, separator, at + separator.size())) {
    found.push_back(at);
  }
  if (from_right && separator.size() > 1) {
    // Occurrences that overlap are counted from the end.
    found.clear();
    const std::string reversed(text.rbegin(), text.rend());
    const std::string needle(separator.rbegin(), separator.rend());
    for (size_t at = find_text(reversed, needle); at != std::string::npos;
         at = find_text(reversed, needle, at + needle.size())) {
      found.push_back(text.size() - at - needle.size());
    }
    std::reverse(found.begin(), found.end());
  }
  const size_t num_splits = num_splits_max < 0
                                ? found.size()
                                : std::min(found.size(), static_cast<size_t>(num_splits_max));
  const size_t first = from_right ? found.size() - num_splits : 0;
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t i = first; i < first + num_splits; ++i) {
    parts.push_back(text.substr(begin, found[i] - begin));
    begin = found[i] + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> split_at_spaces(std::string_view text, int64_t num_splits_max,
                                              bool from_right) {
  struct Word {
    size_t begin;
    size_t end;
  };
  std::vector<Word> words;
  bool is_inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is_space(next_code_point(text, at))) {
      is_inside = false;
    } else if (is_inside) {
      words.back().end = at;
    } else {
      words.push_back({begin, at});
      is_inside = true;
    }
  }
  std::vector<std::string_view> parts;
  if (words.empty()) return parts;
  const size_t num_splits = num_splits_max < 0
                                ? words.size() - 1
                                : std::min(words.size() - 1, static_cast<size_t>(num_splits_max));
  if (from_right) {
    const size_t first = words.size() - num_splits;  // words before it stay together
    const std::string_view head = text.substr(0, words[first - 1].end);
    parts.push_back(num_splits + 1 == words.size() ? strip_spaces(head)
                                                   : strip_spaces(head, Side::kRight));
    for (size_t i = first; i < words.size(); ++i) {
      parts.push_back(text.substr(words[i].begin, words[i].end - words[i].begin));
    }
    return parts;
  }
  for (size_t i = 0; i < num_splits; ++i) {
    parts.push_back(text.substr(words[i].begin, words[i].end - words[i].begin));
  }
  const std::string_view tail = text.substr(words[num_splits].begin);
  parts.push_back(num_splits + 1 == words.size() ? strip_spaces(tail) : tail);
  return parts;
}

}  // namespace halley::jinja
