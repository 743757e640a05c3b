// The place in the text of a grammar, and the rules found so far: common to its dialects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "halley/constraint/text_grammar.h"
#include "halley/constraint/text_rules.h"

namespace halley {

/// `text` outlives this. All methods throw InputError for what they cannot read.
class GrammarScanner {
 public:
  GrammarScanner(std::string_view text, const std::string& where, const TextGrammarLimits& limits);

  /// "line 3, column 7".
  std::string place(size_t at) const;
  /// Throws InputError "<where>: expected <expectation> at line 3, column 7, got ...".
  [[noreturn]] void reject(const std::string& expectation, size_t at) const;

 protected:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool is_at_end() const { return at_ == text_.size(); }
  bool is_next(std::string_view sign) const { return text_.substr(at_).starts_with(sign); }
  bool take(std::string_view sign);

  /// The rule of this name, which may be defined later.
  size_t rule_named(std::string_view name, size_t at);
  void define(size_t rule, size_t body);
  /// Rejects a second definition; `at` is where it stands.
  void check_is_new(size_t rule, size_t at) const;
  size_t add(RuleNode node);
  size_t add_repeat(size_t part, int32_t min, int32_t max);
  /// Rejects a grammar without the rule `root_name`, which is the output.
  void check_root(std::string_view root_name, const std::string& example) const;
  /// All rules; `root_name` is the output. `example` says how it is written.
  TextRules finish(std::string_view root_name, const std::string& example);

  int32_t read_number();
  /// One character, which may be escaped.
  uint32_t read_char();
  void check_depth(int depth) const;

  std::string_view text_;
  std::string where_;
  TextGrammarLimits limits_;
  size_t at_ = 0;

 private:
  uint32_t read_escape();

  TextRules out_;
  std::map<std::string, size_t, std::less<>> rule_ids_;
};

/// Whether the character may stand in a name, after its first one.
bool is_word_char(char c);

}  // namespace halley
