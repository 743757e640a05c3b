// Markers in a model's text that arrives in pieces: the bytes that must be held back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace halley {

inline constexpr std::string_view kSpaces = " \t\r\n";
/// Longer white space before a marker is text: what is held back has a bound.
inline constexpr size_t kHeldSpacesMax = 64;

inline bool is_space(char c) { return kSpaces.find(c) != std::string_view::npos; }

inline size_t num_leading_spaces(std::string_view text) {
  const size_t n = text.find_first_not_of(kSpaces);
  return n == std::string_view::npos ? text.size() : n;
}

/// The text without white space around it.
inline std::string_view trimmed(std::string_view text) {
  text.remove_prefix(num_leading_spaces(text));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

/// At most kHeldSpacesMax.
inline size_t num_trailing_spaces(std::string_view text) {
  size_t n = 0;
  while (n < std::min(text.size(), kHeldSpacesMax) && is_space(text[text.size() - 1 - n])) ++n;
  return n;
}

/// Bytes at the end of `text` with which `marker` may begin: not all of it.
inline size_t num_bytes_of_marker(std::string_view text, std::string_view marker) {
  if (marker.empty()) return 0;
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

/// The first marker in a text; of two at the same place the longer one.
struct FoundMarker {
  size_t start = 0;
  std::string_view marker;
};

/// Empty markers are skipped.
inline std::optional<FoundMarker> find_marker(std::string_view text,
                                              std::span<const std::string_view> markers) {
  std::optional<FoundMarker> first;
  for (const std::string_view marker : markers) {
    const size_t start = marker.empty() ? std::string_view::npos : text.find(marker);
    if (start == std::string_view::npos) continue;
    const bool is_better = !first || start < first->start ||
                           (start == first->start && marker.size() > first->marker.size());
    if (is_better) first = {start, marker};
  }
  return first;
}

/// The most bytes at the end of `text` with which one of the markers may begin.
inline size_t num_bytes_of_markers(std::string_view text,
                                   std::span<const std::string_view> markers) {
  size_t n = 0;
  for (const std::string_view marker : markers) n = std::max(n, num_bytes_of_marker(text, marker));
  return n;
}

/// How a text compares with markers that may stand at its beginning.
enum class MarkerMatch {
  kNone,  // none stands there, and none can
  kPart,  // the text is shorter than a marker, and its beginning
  kWhole,
};

struct MarkerAtStart {
  MarkerMatch match = MarkerMatch::kNone;
  std::string_view marker = {};  // for kWhole
};

/// Empty markers are skipped; of two the longer one.
inline MarkerAtStart marker_at_start(std::string_view text,
                                     std::span<const std::string_view> markers) {
  MarkerAtStart found;
  for (const std::string_view marker : markers) {
    if (marker.size() > text.size() && marker.starts_with(text)) return {MarkerMatch::kPart};
    const bool is_whole = !marker.empty() && text.starts_with(marker);
    if (is_whole && marker.size() > found.marker.size()) found = {MarkerMatch::kWhole, marker};
  }
  return found;
}

}  // namespace halley
