// Regular expressions run by PCRE2, with limits that a untrusted pattern cannot pass.
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

/// Whether `pattern` compiles.
bool pcre_accepts(const std::string& pattern);

/// A compiled pattern in PCRE2's own syntax. Immutable; any thread.
class PcrePattern {
 public:
  /// Throws InputError where the pattern does not compile.
  PcrePattern(const std::string& pattern, const std::string& where);

  /// All matches from left to right in valid UTF-8. An empty match just behind the match before it
  /// is left out. Throws InputError where the limits of steps, memory or time are reached.
  std::vector<TextRange> find_all(std::string_view text) const;

 private:
  /// Finds the first match at or behind `start`; false where there is none.
  bool find(std::string_view text, size_t start, TextRange& match) const;

  std::shared_ptr<void> code_;  // pcre2_code
  bool is_jit_ = false;
  std::string where_;
};

}  // namespace halley
