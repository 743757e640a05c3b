// Tokenizes a regular expression: characters, classes, escapes and counts (pattern.h lists the
// supported ones).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "halley/constraint/char_set.h"
#include "halley/constraint/repeat_count.h"

namespace halley {

class PatternReader {
 public:
  /// `pattern` is valid UTF-8 and outlives this.
  PatternReader(std::string_view pattern, const std::string& where, bool dot_is_any_char = false)
      : pattern_(pattern), where_(where), dot_is_any_char_(dot_is_any_char) {}

  bool is_at_end() const { return at_ == pattern_.size(); }
  char peek() const { return is_at_end() ? '\0' : pattern_[at_]; }
  /// Skips `sign` if it is next.
  bool take(char sign);
  /// Reads a count and the '?' that makes it lazy.
  std::optional<RepeatCount> take_count();
  /// Reads an atom that matches one character.
  CharSet take_char_set();
  /// Skips "?:", "?<name>" or "?P<name>" after '('.
  void take_group_head();

  /// Throws InputError "<where>: expected <expectation> at byte 7 of ...".
  [[noreturn]] void reject(const std::string& expectation) const;
  [[noreturn]] void reject_anchor() const;

 private:
  [[noreturn]] void reject_unsupported(const std::string& what) const;
  uint32_t take_char();
  std::optional<int32_t> take_number();
  CharSet take_class();
  CharSet take_class_item();
  /// Reads the rest of an escape, after the backslash.
  CharSet take_escape();
  std::optional<uint32_t> take_control_escape(char letter);
  uint32_t take_hex(size_t num_digits);
  uint32_t take_unicode_escape();

  std::string_view pattern_;
  std::string where_;
  bool dot_is_any_char_;
  size_t at_ = 0;
};

}  // namespace halley
