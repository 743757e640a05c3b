// Reads GBNF (text_grammar.h) into rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "halley/constraint/grammar_scanner.h"

namespace halley {

class GbnfReader : public GrammarScanner {
 public:
  using GrammarScanner::GrammarScanner;

  /// Throws InputError. To be called once.
  TextRules read();

 private:
  struct Count {
    int32_t min = 0;
    int32_t max = 0;
  };

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
  bool read_count(Count& count);
};

}  // namespace halley
