#include "halley/engine/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "halley/base/check.h"

namespace halley {
namespace {

std::vector<size_t> borders_of(const std::string& text) {
  std::vector<size_t> borders(text.size() + 1, 0);
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = borders[length];
    if (text[i] == text[length]) ++length;
    borders[i + 1] = length;
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool includes_stop)
    : includes_stop_(includes_stop) {
  for (std::string& stop : stops) {
    HALLEY_CHECK(!stop.empty());
    std::vector<size_t> borders = borders_of(stop);
    patterns_.push_back({std::move(stop), std::move(borders), 0});
  }
}

size_t StopMatcher::advance(Pattern& pattern, char byte) {
  size_t n = pattern.num_matched;
  // A whole match that did not count continues as its longest border.
  if (n == pattern.text.size()) n = pattern.borders[n];
  while (n > 0 && pattern.text[n] != byte) n = pattern.borders[n];
  if (pattern.text[n] == byte) ++n;
  pattern.num_matched = n;
  return n;
}

StopMatcher::Piece StopMatcher::push(std::string_view text, bool may_stop) {
  Piece piece;
  for (const char byte : text) {
    held_ += byte;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      const bool is_whole = advance(pattern, byte) == pattern.text.size();
      if (!is_whole || !may_stop) continue;
      if (!piece.stop_index || patterns_[*piece.stop_index].text.size() < pattern.text.size()) {
        piece.stop_index = i;
      }
    }
    if (piece.stop_index) {
      if (!includes_stop_) held_.resize(held_.size() - patterns_[*piece.stop_index].text.size());
      piece.text = std::exchange(held_, {});
      return piece;
    }
  }
  size_t num_held = 0;
  for (const Pattern& pattern : patterns_) {
    const bool is_whole = pattern.num_matched == pattern.text.size();
    num_held =
        std::max(num_held, is_whole ? pattern.borders[pattern.num_matched] : pattern.num_matched);
  }
  piece.text = held_.substr(0, held_.size() - num_held);
  held_.erase(0, held_.size() - num_held);
  return piece;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace halley
