// Regular expressions run by PCRE2, with limits that an untrusted pattern cannot pass.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin;
  size_t end;
};

/// How long a search of a text may take. Real patterns run at megabytes a second.
struct TimeLimit {
  double seconds = 10.0;
  double seconds_per_byte = 10e-6;
};

/// Whether `pattern` compiles.
bool pcre_accepts(const std::string& pattern);

/// A compiled pattern in PCRE2's own syntax. Immutable; any thread.
class PcrePattern {
 public:
  /// Throws InputError where the pattern does not compile.
  PcrePattern(const std::string& pattern, const std::string& where);

  /// All matches from left to right in valid UTF-8. An empty match just behind the match before it
  /// is left out. Throws InputError where the limits of steps, memory or time are reached.
  std::vector<TextRange> find_all(std::string_view text, const TimeLimit& limit = {}) const;

 private:
  /// Finds the first match that begins at or behind `start`; false where there is none.
  bool find(std::string_view text, size_t start, TextRange& match) const;
  /// The same for matches that begin in [start, last_start].
  bool find_among(std::string_view text, size_t start, size_t last_start, TextRange& match) const;
  void throw_if_late(size_t num_bytes) const;

  std::shared_ptr<void> code_;        // pcre2_code
  std::shared_ptr<void> timed_code_;  // pcre2_code that calls out before each item
  bool is_jit_ = false;
  std::string where_;
};

}  // namespace halley
