// Text for messages: str(a, b, ...) joins anything that a stream prints; sequences print as
// [1, 2, 3]; quote() makes untrusted text safe to show.
#pragma once

#include <cstddef>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// `text` between double quotes with control characters and invalid UTF-8 escaped as \xNN, cut
/// after `num_bytes_max` bytes with "..." behind it. For text that comes from a file or a request.
/// (Not named `quoted`: for a std::string argument, look-up would find std::quoted.)
std::string quote(std::string_view text, size_t num_bytes_max = 80);

/// Bytes for people: "42.2 MB", "812 B". Powers of 1000.
std::string format_bytes(double num_bytes);

namespace str_detail {

template <typename T>
void append(std::ostream& out, const T& value) {
  out << value;
}

template <typename T>
void append(std::ostream& out, std::span<const T> values) {
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out << ", ";
    out << values[i];
  }
  out << ']';
}

template <typename T>
void append(std::ostream& out, const std::vector<T>& values) {
  append(out, std::span<const T>(values));
}

}  // namespace str_detail

/// Joins its arguments into one string.
template <typename... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (str_detail::append(out, args), ...);
  return out.str();
}

}  // namespace halley
