#include "halley/constraint/text_grammar_reader.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr size_t kNameBytesMax = 128;
constexpr std::string_view kDefines = "::=";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void TextGrammarReader::reject(const std::string& expectation, size_t at) const {
  const std::string_view before = text_.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_begin =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const std::string got = at < text_.size() ? quote(text_.substr(at), 20) : std::string("the end");
  throw InputError(str(where_, ": expected ", expectation, " at line ", line, ", column ",
                       at - line_begin + 1, ", got ", got, "."));
}

bool TextGrammarReader::take(char sign) {
  if (is_at_end() || peek() != sign) return false;
  ++at_;
  return true;
}

// Skips white space, line ends and comments.
void TextGrammarReader::skip_blank() {
  while (!is_at_end()) {
    if (is_blank(peek())) {
      ++at_;
    } else if (peek() == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

std::string_view TextGrammarReader::name_at(size_t at) const {
  size_t end = at;
  while (end < text_.size() && is_name_char(text_[end])) ++end;
  return text_.substr(at, end - at);
}

// Whether "name ::=" is next, which ends the rule before.
bool TextGrammarReader::is_at_rule() const {
  const std::string_view name = name_at(at_);
  size_t end = at_ + name.size();
  while (end < text_.size() && is_blank(text_[end])) ++end;
  return !name.empty() && text_.substr(end).starts_with(kDefines);
}

size_t TextGrammarReader::rule_named(std::string_view name, size_t at) {
  if (name.size() > kNameBytesMax) {
    reject(str("a name of at most ", kNameBytesMax, " bytes"), at);
  }
  if (const auto found = rule_ids_.find(name); found != rule_ids_.end()) return found->second;
  const size_t id = out_.rules.size();
  if (id == limits_.rules_max) reject(str("at most ", limits_.rules_max, " rules"), at);
  out_.rules.push_back({.name = std::string(name), .first_at = at});
  rule_ids_.emplace(name, id);
  return id;
}

size_t TextGrammarReader::add(RuleNode node) {
  out_.nodes.push_back(std::move(node));
  return out_.nodes.size() - 1;
}

TextRules TextGrammarReader::read() {
  if (text_.size() > limits_.bytes_max) {
    throw InputError(
        str(where_, ": expected at most ", limits_.bytes_max, " bytes, got ", text_.size(), "."));
  }
  if (!is_valid_utf8(text_)) throw InputError(where_ + ": expected valid UTF-8, got other bytes.");
  skip_blank();
  while (!is_at_end()) read_rule();
  for (const TextRule& rule : out_.rules) {
    if (rule.is_defined) continue;
    reject(str("a definition of the rule ", quote(rule.name), ", which is used"), rule.first_at);
  }
  const auto root = rule_ids_.find("root");
  if (root == rule_ids_.end()) {
    throw InputError(where_ + ": expected a rule \"root ::= ...\", which is the output, got none.");
  }
  out_.root = root->second;
  return std::move(out_);
}

void TextGrammarReader::read_rule() {
  const size_t begin = at_;
  if (!is_at_rule()) reject("a rule, \"name ::= ...\",", begin);
  const std::string_view name = name_at(at_);
  const size_t rule = rule_named(name, begin);
  if (out_.rules[rule].is_defined) {
    reject(str("one definition of each rule, and ", quote(name), " has one"), begin);
  }
  out_.rules[rule].is_defined = true;
  at_ += name.size();
  skip_blank();
  at_ += kDefines.size();
  const size_t body = read_choice(0);
  out_.rules[rule].body = body;
  if (!is_at_end() && !is_at_rule()) reject("a part of a rule or another rule", at_);
}

size_t TextGrammarReader::read_choice(int depth) {
  RuleNode choice = {.kind = RuleNode::Kind::kChoice};
  do {
    choice.parts.push_back(read_sequence(depth));
  } while (take('|'));
  return choice.parts.size() == 1 ? choice.parts.front() : add(std::move(choice));
}

size_t TextGrammarReader::read_sequence(int depth) {
  RuleNode sequence;
  skip_blank();
  while (!is_at_end() && peek() != '|' && peek() != ')' && !is_at_rule()) {
    sequence.parts.push_back(read_quantified(depth));
    skip_blank();
  }
  return sequence.parts.size() == 1 ? sequence.parts.front() : add(std::move(sequence));
}

size_t TextGrammarReader::read_quantified(int depth) {
  const size_t item = read_item(depth);
  Count count;
  if (!read_count(count)) return item;
  const size_t at = at_;
  Count another;
  if (read_count(another)) reject("one quantifier, or parentheses around the first,", at);
  return add(
      {.kind = RuleNode::Kind::kRepeat, .parts = {item}, .min = count.min, .max = count.max});
}

size_t TextGrammarReader::read_item(int depth) {
  const size_t begin = at_;
  if (take('"')) return read_text();
  if (take('[')) return read_class();
  if (take('(')) return read_group(depth);
  if (take('.')) return add({.kind = RuleNode::Kind::kChars, .chars = CharSet::all()});
  const std::string_view name = name_at(at_);
  if (name.empty()) reject("a text, a class, a group or the name of a rule", begin);
  at_ += name.size();
  return add({.kind = RuleNode::Kind::kRule, .rule = rule_named(name, begin)});
}

size_t TextGrammarReader::read_group(int depth) {
  if (depth == limits_.depth_max) {
    reject(str("at most ", limits_.depth_max, " nested groups"), at_ - 1);
  }
  const size_t body = read_choice(depth + 1);
  if (!take(')')) reject("a ')'", at_);
  return body;
}

size_t TextGrammarReader::read_text() {
  RuleNode node = {.kind = RuleNode::Kind::kText};
  while (!take('"')) {
    if (is_at_end() || peek() == '\n') reject("a '\"' that ends the text", at_);
    append_utf8(node.text, read_char());
  }
  return add(std::move(node));
}

size_t TextGrammarReader::read_class() {
  const size_t begin = at_ - 1;
  const bool is_complement = take('^');
  std::vector<CharSet::Range> ranges;
  while (!take(']')) {
    if (is_at_end() || peek() == '\n') reject("a ']' that ends the class", at_);
    const size_t at = at_;
    const uint32_t first = read_char();
    uint32_t last = first;
    // A '-' before the end stands for itself.
    if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
      ++at_;
      if (is_at_end() || peek() == '\n') reject("a ']' that ends the class", at_);
      last = read_char();
    }
    if (last < first) reject("a range of ascending characters", at);
    ranges.push_back({first, last});
  }
  CharSet chars(std::move(ranges));
  if (is_complement) chars = chars.complement();
  if (chars.is_empty()) reject("a class of at least one character", begin);
  return add({.kind = RuleNode::Kind::kChars, .chars = std::move(chars)});
}

// Reads "*", "+", "?" or "{n,m}", if one is next, also behind spaces.
bool TextGrammarReader::read_count(Count& count) {
  const size_t begin = at_;
  while (peek() == ' ' || peek() == '\t') ++at_;
  const size_t at = at_;
  if (take('*')) {
    count = {0, kUnbounded};
  } else if (take('+')) {
    count = {1, kUnbounded};
  } else if (take('?')) {
    count = {0, 1};
  } else if (take('{')) {
    skip_blank();
    const bool has_min = peek() != ',';
    count.min = has_min ? read_number() : 0;
    count.max = count.min;
    skip_blank();
    if (take(',')) {
      skip_blank();
      count.max = peek() == '}' && has_min ? kUnbounded : read_number();
      skip_blank();
    }
    if (!take('}')) reject("a '}' behind the counts", at_);
    if (count.max < count.min) reject("a count {n,m} with n <= m", at);
  } else {
    at_ = begin;
    return false;
  }
  return true;
}

int32_t TextGrammarReader::read_number() {
  const size_t begin = at_;
  int32_t number = 0;
  while (peek() >= '0' && peek() <= '9') {
    number = number * 10 + (peek() - '0');
    ++at_;
    if (number > kRepeatMax) reject(str("a count of at most ", kRepeatMax), begin);
  }
  if (at_ == begin) reject("a count", begin);
  return number;
}

// One character, which may be escaped.
uint32_t TextGrammarReader::read_char() {
  if (take('\\')) return read_escape();
  const Utf8Char next = first_char(text_.substr(at_));
  at_ += next.num_bytes;
  return next.code;
}

uint32_t TextGrammarReader::read_escape() {
  const size_t begin = at_ - 1;
  const char letter = peek();
  if (!is_at_end()) ++at_;
  switch (letter) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'x':
    case 'u':
    case 'U':
      break;
    default:
      if (std::string_view("\\\"'[]-^").find(letter) == std::string_view::npos || letter == '\0') {
        reject("an escape: \\n \\r \\t \\\\ \\\" \\' \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH",
               begin);
      }
      return static_cast<uint8_t>(letter);
  }
  const int num_digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  uint64_t code = 0;
  for (int i = 0; i < num_digits; ++i) {
    const int digit = is_at_end() ? -1 : hex_digit(peek());
    if (digit < 0) reject(str(num_digits, " hexadecimal digits"), begin);
    code = code * 16 + static_cast<uint64_t>(digit);
    ++at_;
  }
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code > kCodePointMax || is_surrogate) reject("a Unicode character", begin);
  return static_cast<uint32_t>(code);
}

}  // namespace halley
