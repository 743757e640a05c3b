// Patterns that pick layers by name, in the three syntaxes that configurations use.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace halley {

/// Immutable; any thread.
class NamePattern {
 public:
  /// A regular expression in Python's syntax as far as PCRE2 has it, that must match from the
  /// beginning of the name, as Python's re.match. Throws InputError "<where>: ..." where it does
  /// not compile.
  static NamePattern regex(const std::string& expression, const std::string& where);
  /// `*` any text, `?` any character, the rest itself; the whole name.
  static NamePattern glob(std::string_view text, const std::string& where);
  /// The name itself.
  static NamePattern exact(std::string name);
  /// "re:..." is a regular expression, a text with * or ? a glob, another the name itself.
  static NamePattern parse(const std::string& text, const std::string& where);

  /// Throws InputError where an expression takes too many steps.
  bool matches(std::string_view name) const;
  /// As it was written.
  const std::string& text() const { return text_; }

 private:
  NamePattern(std::string text, std::string where)
      : text_(std::move(text)), where_(std::move(where)) {}
  void compile(const std::string& expression);

  std::string text_;
  std::string where_;
  std::shared_ptr<void> code_;  // pcre2_code; null: the name itself
};

}  // namespace halley
