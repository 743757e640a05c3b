// Cuts a template's source into tokens, with Jinja's rules for whitespace around tags
// (trim_blocks and lstrip_blocks on, keep_trailing_newline off).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/chat_template/value.h"

namespace halley::jinja {

enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kNumber,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;  // of a string: its value
  Value number;
};

/// A syntax error with its line.
class SyntaxFailure : public TemplateFailure {
 public:
  SyntaxFailure(int line_number, const std::string& message)
      : TemplateFailure(message), line(line_number) {}
  int line;
};

/// The tokens, with kEnd last. Throws SyntaxFailure.
std::vector<Token> tokenize(std::string_view source);

/// The name of a token in messages: "end of statement block", "name \"x\"".
std::string describe(const Token& token);

}  // namespace halley::jinja
