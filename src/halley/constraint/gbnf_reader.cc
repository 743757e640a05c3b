#include "halley/constraint/gbnf_reader.h"

#include <algorithm>
#include <utility>

#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr std::string_view kDefines = "::=";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_name_char(char c) { return is_word_char(c) || c == '-'; }

}  // namespace

// Skips white space, line ends and comments.
void GbnfReader::skip_blank() {
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

std::string_view GbnfReader::name_at(size_t at) const {
  size_t end = at;
  while (end < text_.size() && is_name_char(text_[end])) ++end;
  return text_.substr(at, end - at);
}

// Whether "name ::=" is next, which ends the rule before.
bool GbnfReader::is_at_rule() const {
  const std::string_view name = name_at(at_);
  size_t end = at_ + name.size();
  while (end < text_.size() && is_blank(text_[end])) ++end;
  return !name.empty() && text_.substr(end).starts_with(kDefines);
}

TextRules GbnfReader::read() {
  skip_blank();
  while (!is_at_end()) read_rule();
  return finish("root", "root ::= ...");
}

void GbnfReader::read_rule() {
  const size_t begin = at_;
  if (!is_at_rule()) reject("a rule, \"name ::= ...\",", begin);
  const std::string_view name = name_at(at_);
  const size_t rule = rule_named(name, begin);
  check_is_new(rule, begin);
  at_ += name.size();
  skip_blank();
  at_ += kDefines.size();
  define(rule, read_choice(0));
  if (!is_at_end() && !is_at_rule()) reject("a part of a rule or another rule", at_);
}

size_t GbnfReader::read_choice(int depth) {
  RuleNode choice = {.kind = RuleNode::Kind::kChoice};
  do {
    choice.parts.push_back(read_sequence(depth));
  } while (take("|"));
  return choice.parts.size() == 1 ? choice.parts.front() : add(std::move(choice));
}

size_t GbnfReader::read_sequence(int depth) {
  RuleNode sequence;
  skip_blank();
  while (!is_at_end() && peek() != '|' && peek() != ')' && !is_at_rule()) {
    sequence.parts.push_back(read_quantified(depth));
    skip_blank();
  }
  return sequence.parts.size() == 1 ? sequence.parts.front() : add(std::move(sequence));
}

size_t GbnfReader::read_quantified(int depth) {
  const size_t item = read_item(depth);
  const std::optional<RepeatCount> count = read_count();
  if (!count) return item;
  const size_t at = at_;
  if (read_count()) reject("one quantifier, or parentheses around the first,", at);
  return add_repeat(item, count->min, count->max);
}

size_t GbnfReader::read_item(int depth) {
  const size_t begin = at_;
  if (take("\"")) return read_text();
  if (take("[")) return read_class();
  if (take("(")) return read_group(depth);
  if (take(".")) return add({.kind = RuleNode::Kind::kChars, .chars = CharSet::all()});
  const std::string_view name = name_at(at_);
  if (name.empty()) reject("a text, a class, a group or the name of a rule", begin);
  at_ += name.size();
  return add({.kind = RuleNode::Kind::kRule, .rule = rule_named(name, begin)});
}

size_t GbnfReader::read_group(int depth) {
  check_depth(depth);
  const size_t body = read_choice(depth + 1);
  if (!take(")")) reject("a ')'", at_);
  return body;
}

size_t GbnfReader::read_text() {
  RuleNode node = {.kind = RuleNode::Kind::kText};
  while (!take("\"")) {
    if (is_at_end() || peek() == '\n') reject("a '\"' that ends the text", at_);
    append_utf8(node.text, read_char());
  }
  return add(std::move(node));
}

size_t GbnfReader::read_class() {
  const size_t begin = at_ - 1;
  const bool is_complement = take("^");
  std::vector<CharSet::Range> ranges;
  while (!take("]")) {
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

std::optional<RepeatCount> GbnfReader::read_count() {
  const size_t begin = at_;
  while (peek() == ' ' || peek() == '\t') ++at_;
  const size_t at = at_;
  if (const auto count = count_of_sign(peek())) {
    ++at_;
    return count;
  }
  if (!take("{")) {
    at_ = begin;
    return std::nullopt;
  }
  skip_blank();
  const bool has_min = peek() != ',';
  const int32_t min = has_min ? read_number() : 0;
  int32_t max = min;
  skip_blank();
  if (take(",")) {
    skip_blank();
    max = peek() == '}' && has_min ? kUnbounded : read_number();
    skip_blank();
  }
  if (!take("}")) reject("a '}' behind the counts", at_);
  if (max < min) reject("a count {n,m} with n <= m", at);
  return RepeatCount{min, max};
}

}  // namespace halley
