// Reads grammars of Lark, as Lark, llguidance and OpenAI's custom tools have them, into rules.
//
//   start: "say" name ("," name)*
//   ?name: WORD | ESCAPED_STRING -> quoted
//   WORD: /[a-z]+/i
//   %import common.ESCAPED_STRING
//   %ignore " "
//
// Supported: rules (with ?, !, _, priorities and aliases, which say nothing of the texts) and
// terminals; "text", "text"i, "a".."z", /regex/ with the flags i, s, m and u; groups, [optional],
// | * + ? ~n ~n..m {n} {n,m}; %ignore, %import of the terminals of lark_terminals.h, %llguidance
// {}; comments with // and #. Rejected: templates, %declare, %override, %extend, %json, special
// tokens.
//
// There is no lexer: a terminal need not be the longest one that could be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "halley/constraint/grammar_scanner.h"
#include "halley/constraint/repeat_count.h"

namespace halley {

class LarkReader : public GrammarScanner {
 public:
  LarkReader(std::string_view text, const std::string& where, const TextGrammarLimits& limits);

  /// Throws InputError. To be called once.
  TextRules read();

 private:
  /// Whether a body is of a terminal, whose parts nothing separates.
  enum class Level : uint8_t { kRule, kTerminal };

  void skip_blank();
  std::string_view name_at(size_t at) const;
  bool is_at_statement() const;
  std::string_view take_name(const char* what);

  void read_statement();
  void read_directive();
  void read_import();
  void import_terminal(std::string_view name, std::string_view alias, size_t at);
  void read_definition();
  size_t read_choice(Level level, int depth);
  size_t read_sequence(Level level, int depth);
  size_t read_quantified(Level level, int depth);
  size_t read_item(Level level, int depth);
  size_t read_group(Level level, int depth, std::string_view end);
  size_t read_reference(Level level);
  size_t read_text();
  std::string read_quoted();
  size_t read_range_from(const std::string& first, size_t at);
  size_t read_regex();
  /// Reads a quantifier if one is next, also behind spaces.
  std::optional<RepeatCount> read_count();
  size_t with_ignored(size_t lexeme);

  size_t ignored_rule_ = 0;  // texts between lexemes
  bool has_ignored_ = false;
  std::vector<size_t> ignored_;  // nodes
};

/// Whether the first statement of a grammar is one of Lark, and not of GBNF.
bool looks_like_lark(std::string_view text);

}  // namespace halley
