// Parses the text of a grammar (text_grammar.h) into rules, whose references are resolved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "halley/constraint/char_set.h"
#include "halley/constraint/text_grammar.h"

namespace halley {

/// A part of a rule's right side. `parts` are indices of nodes.
struct RuleNode {
  enum class Kind : uint8_t { kChars, kText, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  CharSet chars = {};              // kChars
  std::string text = {};           // kText: UTF-8, may be empty
  size_t rule = 0;                 // kRule: an index of rules
  std::vector<size_t> parts = {};  // kSequence, kChoice: any number; kRepeat: one
  int32_t min = 0;                 // kRepeat
  int32_t max = 0;
};

struct TextRule {
  std::string name;
  size_t first_at = 0;  // the byte at which it is first defined or used
  bool is_defined = false;
  size_t body = 0;  // a node
};

struct TextRules {
  std::vector<TextRule> rules;
  std::vector<RuleNode> nodes;
  size_t root = 0;  // a rule
};

/// `text` outlives this.
class TextGrammarReader {
 public:
  TextGrammarReader(std::string_view text, const std::string& where,
                    const TextGrammarLimits& limits)
      : text_(text), where_(where), limits_(limits) {}

  /// Throws InputError. To be called once.
  TextRules read();

  /// Throws InputError "<where>: expected <expectation> at line 3, column 7, got ...".
  [[noreturn]] void reject(const std::string& expectation, size_t at) const;

 private:
  struct Count {
    int32_t min = 0;
    int32_t max = 0;
  };

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool is_at_end() const { return at_ == text_.size(); }
  bool take(char sign);
  void skip_blank();
  std::string_view name_at(size_t at) const;
  bool is_at_rule() const;
  size_t rule_named(std::string_view name, size_t at);
  size_t add(RuleNode node);

  void read_rule();
  size_t read_choice(int depth);
  size_t read_sequence(int depth);
  size_t read_quantified(int depth);
  size_t read_item(int depth);
  size_t read_group(int depth);
  size_t read_text();
  size_t read_class();
  bool read_count(Count& count);
  int32_t read_number();
  uint32_t read_char();
  uint32_t read_escape();

  std::string_view text_;
  std::string where_;
  TextGrammarLimits limits_;
  size_t at_ = 0;
  TextRules out_;
  std::map<std::string, size_t, std::less<>> rule_ids_;
};

}  // namespace halley
