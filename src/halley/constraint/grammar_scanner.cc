#include "halley/constraint/grammar_scanner.h"

#include <algorithm>
#include <functional>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr size_t kNameBytesMax = 128;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

GrammarScanner::GrammarScanner(std::string_view text, const std::string& where,
                               const TextGrammarLimits& limits)
    : text_(text), where_(where), limits_(limits) {
  if (text_.size() > limits_.bytes_max) {
    throw InputError(
        str(where_, ": expected at most ", limits_.bytes_max, " bytes, got ", text_.size(), "."));
  }
  if (!is_valid_utf8(text_)) throw InputError(where_ + ": expected valid UTF-8, got other bytes.");
}

std::string GrammarScanner::place(size_t at) const {
  const std::string_view before = text_.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_end = before.rfind('\n');
  const size_t line_begin = line_end == std::string_view::npos ? 0 : line_end + 1;
  return str("line ", line, ", column ", at - line_begin + 1);
}

void GrammarScanner::reject(const std::string& expectation, size_t at) const {
  const std::string got = at < text_.size() ? quote(text_.substr(at), 20) : std::string("the end");
  throw InputError(str(where_, ": expected ", expectation, " at ", place(at), ", got ", got, "."));
}

bool GrammarScanner::take(std::string_view sign) {
  if (!is_next(sign)) return false;
  at_ += sign.size();
  return true;
}

size_t GrammarScanner::rule_named(std::string_view name, size_t at) {
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

void GrammarScanner::check_is_new(size_t rule, size_t at) const {
  const TextRule& known = out_.rules[rule];
  if (!known.is_defined) return;
  reject(str("one definition of each rule, and ", quote(known.name), " has one"), at);
}

void GrammarScanner::define(size_t rule, size_t body) {
  out_.rules[rule].is_defined = true;
  out_.rules[rule].body = body;
}

size_t GrammarScanner::add(RuleNode node) {
  out_.nodes.push_back(std::move(node));
  return out_.nodes.size() - 1;
}

size_t GrammarScanner::add_repeat(size_t part, int32_t min, int32_t max) {
  return add({.kind = RuleNode::Kind::kRepeat, .parts = {part}, .min = min, .max = max});
}

TextRules GrammarScanner::finish(std::string_view root_name, const std::string& example) {
  for (const TextRule& rule : out_.rules) {
    if (rule.is_defined) continue;
    reject(str("a definition of the rule ", quote(rule.name), ", which is used"), rule.first_at);
  }
  check_root(root_name, example);
  out_.root = rule_ids_.find(root_name)->second;
  return std::move(out_);
}

void GrammarScanner::check_root(std::string_view root_name, const std::string& example) const {
  if (rule_ids_.find(root_name) != rule_ids_.end()) return;
  throw InputError(
      str(where_, ": expected a rule ", quote(example), ", which is the output, got none."));
}

void GrammarScanner::check_depth(int depth) const {
  if (depth >= limits_.depth_max) {
    reject(str("at most ", limits_.depth_max, " nested groups"), at_ - 1);
  }
}

int32_t GrammarScanner::read_number() {
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
uint32_t GrammarScanner::read_char() {
  if (take("\\")) return read_escape();
  const Utf8Char next = first_char(text_.substr(at_));
  at_ += next.num_bytes;
  return next.code;
}

uint32_t GrammarScanner::read_escape() {
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
