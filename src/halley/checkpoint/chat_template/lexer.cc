#include "halley/checkpoint/chat_template/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/number_text.h"
#include "halley/checkpoint/chat_template/string_literal.h"
#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

// Bounds the memory of the tokens and of the tree; published templates have some thousand.
constexpr size_t kTokensMax = 200'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// \r\n and \r become \n, and one newline at the end goes.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalized(source)) {}

  std::vector<Token> run();

 private:
  // The start of a tag that follows plain text.
  struct Opening {
    size_t position;
    char type;  // '{' variable, '%' block, '#' comment, 'r' raw
    char sign;  // '-', '+' or 0
    size_t end;
  };

  [[noreturn]] void fail_here(const std::string& message) const {
    throw SyntaxFailure(line_, message);
  }
  bool at(std::string_view word) const { return text_.compare(position_, word.size(), word) == 0; }
  size_t skip_spaces(size_t position) const;
  void add(TokenType type, std::string text = {});
  void move_to(size_t position);
  std::optional<Opening> find_opening() const;
  std::optional<size_t> raw_begin_end(size_t position) const;
  void lex_data();
  void add_data(std::string_view data, const Opening& opening);
  void lex_comment();
  void lex_raw();
  void lex_tag(char type);
  bool lex_tag_end(char type);
  void lex_inside();
  bool lex_number();
  size_t digits_end(size_t position) const;
  void lex_name();
  void lex_string();
  void lex_operator();

  std::string text_;
  size_t position_ = 0;
  int line_ = 1;
  bool starts_line_ = true;  // the last token ended with a newline
  std::vector<char> brackets_;
  std::vector<Token> tokens_;
};

size_t Lexer::skip_spaces(size_t position) const {
  while (position < text_.size()) {
    size_t behind = position;
    if (!is_space(next_code_point(text_, behind))) break;
    position = behind;
  }
  return position;
}

void Lexer::add(TokenType type, std::string text) {
  if (tokens_.size() >= kTokensMax) fail_here(str("more than ", kTokensMax, " tokens"));
  tokens_.push_back({type, line_, std::move(text), Value()});
}

void Lexer::move_to(size_t position) {
  line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(position_),
                                       text_.begin() + static_cast<ptrdiff_t>(position), '\n'));
  if (position > position_) starts_line_ = text_[position - 1] == '\n';
  position_ = position;
}

// The end of "{%- raw %}" at `position`, where it stands there.
std::optional<size_t> Lexer::raw_begin_end(size_t position) const {
  position += 2;
  if (position < text_.size() && (text_[position] == '-' || text_[position] == '+')) ++position;
  position = skip_spaces(position);
  if (text_.compare(position, 3, "raw") != 0) return std::nullopt;
  position = skip_spaces(position + 3);
  if (text_.compare(position, 3, "-%}") == 0) return skip_spaces(position + 3);
  if (text_.compare(position, 2, "%}") == 0) return position + 2;
  return std::nullopt;
}

std::optional<Lexer::Opening> Lexer::find_opening() const {
  for (size_t i = position_; i + 1 < text_.size(); ++i) {
    i = text_.find('{', i);
    if (i == std::string::npos || i + 1 >= text_.size()) return std::nullopt;
    const char type = text_[i + 1];
    if (type != '{' && type != '%' && type != '#') continue;
    Opening opening{i, type, 0, i + 2};
    if (i + 2 < text_.size() && (text_[i + 2] == '-' || text_[i + 2] == '+')) {
      opening.sign = text_[i + 2];
      ++opening.end;
    }
    if (type == '%') {
      if (const std::optional<size_t> end = raw_begin_end(i)) {
        opening.type = 'r';
        opening.end = *end;
      }
    }
    return opening;
  }
  return std::nullopt;
}

void Lexer::add_data(std::string_view data, const Opening& opening) {
  if (opening.sign == '-') {
    data = strip_spaces(data, Side::kRight);
  } else if (opening.sign != '+' && opening.type != '{') {
    // lstrip_blocks: spaces before a tag that starts its line go.
    const size_t newline = data.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool starts_line = newline != std::string_view::npos || starts_line_;
    if (starts_line && strip_spaces(data.substr(line_begin)).empty()) {
      data = data.substr(0, line_begin);
    }
  }
  if (!data.empty()) add(TokenType::kData, std::string(data));
}

void Lexer::lex_data() {
  const std::optional<Opening> opening = find_opening();
  if (!opening) {
    add(TokenType::kData, text_.substr(position_));
    position_ = text_.size();
    return;
  }
  add_data(std::string_view(text_).substr(position_, opening->position - position_), *opening);
  move_to(opening->end);
  switch (opening->type) {
    case '#':
      return lex_comment();
    case 'r':
      return lex_raw();
    default:
      return lex_tag(opening->type);
  }
}

void Lexer::lex_comment() {
  const size_t end = text_.find("#}", position_);
  if (end == std::string::npos) fail_here("Missing end of comment tag");
  const bool strips = end > position_ && text_[end - 1] == '-';
  const bool keeps = end > position_ && text_[end - 1] == '+';
  size_t behind = end + 2;
  if (strips) {
    behind = skip_spaces(behind);
  } else if (!keeps && behind < text_.size() && text_[behind] == '\n') {
    ++behind;
  }
  move_to(behind);
}

void Lexer::lex_raw() {
  for (size_t i = text_.find("{%", position_); i != std::string::npos;
       i = text_.find("{%", i + 1)) {
    size_t end = i + 2;
    const char sign = end < text_.size() ? text_[end] : '\0';
    if (sign == '-' || sign == '+') ++end;
    end = skip_spaces(end);
    if (text_.compare(end, 6, "endraw") != 0) continue;
    end = skip_spaces(end + 6);
    if (text_.compare(end, 3, "-%}") == 0) {
      end = skip_spaces(end + 3);
    } else if (text_.compare(end, 3, "+%}") == 0) {
      end += 3;
    } else if (text_.compare(end, 2, "%}") == 0) {
      end += end + 2 < text_.size() && text_[end + 2] == '\n' ? 3 : 2;
    } else {
      continue;
    }
    add_data(std::string_view(text_).substr(position_, i - position_), {i, 'r', sign, end});
    return move_to(end);
  }
  fail_here("Missing end of raw directive");
}

void Lexer::lex_tag(char type) {
  starts_line_ = false;
  add(type == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin);
  while (position_ < text_.size()) {
    if (brackets_.empty() && lex_tag_end(type)) return;
    lex_inside();
  }
}

bool Lexer::lex_tag_end(char type) {
  const std::string_view end = type == '{' ? "}}" : "%}";
  size_t behind = position_;
  const bool strips = at("-");
  const bool keeps = type == '%' && at("+");
  if (strips || keeps) ++behind;
  if (text_.compare(behind, 2, end) != 0) return false;
  behind += 2;
  if (strips) {
    behind = skip_spaces(behind);
  } else if (type == '%' && !keeps && behind < text_.size() && text_[behind] == '\n') {
    ++behind;
  }
  add(type == '{' ? TokenType::kVariableEnd : TokenType::kBlockEnd);
  move_to(behind);
  return true;
}

void Lexer::lex_inside() {
  const size_t behind_spaces = skip_spaces(position_);
  if (behind_spaces > position_) return move_to(behind_spaces);
  const char c = text_[position_];
  size_t behind = position_;
  if (is_digit(c) && lex_number()) return;
  if (c == '_' || is_word(next_code_point(text_, behind))) return lex_name();
  if (c == '"' || c == '\'') return lex_string();
  lex_operator();
}

// The end of digits with single underscores between them.
size_t Lexer::digits_end(size_t position) const {
  while (position < text_.size() && is_digit(text_[position])) {
    ++position;
    if (position + 1 < text_.size() && text_[position] == '_' && is_digit(text_[position + 1])) {
      ++position;
    }
  }
  return position;
}

bool Lexer::lex_number() {
  size_t end = digits_end(position_);
  const auto char_at = [&](size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  bool is_float = false;
  if (position_ == 0 || text_[position_ - 1] != '.') {
    if (char_at(end) == '.' && is_digit(char_at(end + 1))) {
      end = digits_end(end + 1);
      is_float = true;
    }
    size_t exponent = end + 1;
    if (char_at(end) == 'e' || char_at(end) == 'E') {
      if (char_at(exponent) == '+' || char_at(exponent) == '-') ++exponent;
      if (is_digit(char_at(exponent))) {
        end = digits_end(exponent);
        is_float = true;
      }
    }
  }
  if (!is_float && text_[position_] == '0') {
    const char letter = static_cast<char>(char_at(position_ + 1) | 0x20);
    if (letter == 'x' || letter == 'o' || letter == 'b') {
      end = position_ + 2;
      while (end < text_.size() && (is_word(static_cast<uint8_t>(text_[end])) || text_[end] == '_'))
        ++end;
    } else {
      end = position_ + 1;
      while (char_at(end) == '0') ++end;
    }
  }
  const std::string_view text = std::string_view(text_).substr(position_, end - position_);
  Token token{TokenType::kNumber, line_, std::string(text), Value()};
  if (is_float) {
    token.number = Value::real(parse_float(text).value_or(0.0));
  } else {
    const ParsedInteger parsed = parse_integer(text, 0);
    if (parsed.is_too_large) fail_here(str("the number ", quote(text), " does not fit 64 bits"));
    if (!parsed.value) fail_here(str("the number ", quote(text), " is malformed"));
    token.number = Value::integer(*parsed.value);
  }
  add(TokenType::kNumber);
  tokens_.back() = std::move(token);
  move_to(end);
  return true;
}

void Lexer::lex_name() {
  size_t end = position_;
  bool is_identifier = !is_digit(text_[position_]);
  while (end < text_.size()) {
    size_t behind = end;
    const uint32_t c = next_code_point(text_, behind);
    if (c != '_' && !is_word(c)) break;
    is_identifier = is_identifier && (c == '_' || is_letter(c) || is_decimal_digit(c));
    end = behind;
  }
  if (!is_identifier) fail_here("Invalid character in identifier");
  add(TokenType::kName, text_.substr(position_, end - position_));
  move_to(end);
}

void Lexer::lex_string() {
  const char quote = text_[position_];
  size_t end = position_ + 1;
  while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size()) fail_here(str("a string that starts with ", quote, " has no end"));
  const std::string_view body = std::string_view(text_).substr(position_ + 1, end - position_ - 1);
  const UnescapedString unescaped = unescape_string(body);
  if (!unescaped.error.empty()) fail_here(unescaped.error);
  add(TokenType::kString, unescaped.text);
  move_to(end + 1);
}

void Lexer::lex_operator() {
  static constexpr std::array<std::string_view, 26> kOperators = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!at(op)) continue;
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{')
      brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) fail_here(str("unexpected '", c, "'"));
      if (brackets_.back() != c) {
        fail_here(str("unexpected '", c, "', expected '", brackets_.back(), "'"));
      }
      brackets_.pop_back();
    }
    add(TokenType::kOperator, std::string(op));
    return move_to(position_ + op.size());
  }
  size_t behind = position_;
  next_code_point(text_, behind);
  fail_here(str("unexpected char ",
                quote(std::string_view(text_).substr(position_, behind - position_))));
}

std::vector<Token> Lexer::run() {
  while (position_ < text_.size()) lex_data();
  tokens_.push_back({TokenType::kEnd, line_, {}, Value()});
  return std::move(tokens_);
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template data";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kName:
      return quote(token.text);
    case TokenType::kString:
      return str("string ", quote(token.text));
    case TokenType::kNumber:
      return str("number ", quote(token.text));
    case TokenType::kOperator:
      return str("'", token.text, "'");
    case TokenType::kEnd:
      return "end of template";
  }
  return "token";
}

}  // namespace halley::jinja
