// Reads GBNF (text_grammar.h) into rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "halley/constraint/grammar_scanner.h"
#include "halley/constraint/repeat_count.h"

namespace halley {

class GbnfReader : public GrammarScanner {
 public:
  using GrammarScanner::GrammarScanner;

  /// Throws InputError. To be called once.
  TextRules read();

 private:
  void skip_blank();
  std::string_view name_at(size_t at) const;
  bool is_at_rule() const;

  void read_rule();
  size_t read_choice(int depth);
  size_t read_sequence(int depth);
  size_t read_quantified(int depth);
  size_t read_item(int depth);
  size_t read_group(int depth);
  size_t read_text();
  size_t read_class();
  /// Reads a quantifier if one is next, also behind spaces.
  std::optional<RepeatCount> read_count();
};

}  // namespace halley
