#include "halley/constraint/lark_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"
#include "halley/constraint/lark_terminals.h"

namespace halley {
namespace {

using Kind = RuleNode::Kind;

constexpr const char* kExample = "start: ...";
constexpr std::string_view kIgnored = "%ignore";  // no name of a grammar has a '%'

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }

bool is_terminal_name(std::string_view name) {
  const size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && !is_lower(name[first]);
}

// The byte at or behind `at` that is no white space and in no comment.
size_t behind_blank(std::string_view text, size_t at) {
  while (at < text.size()) {
    if (is_blank(text[at])) {
      ++at;
    } else if (text[at] == '#' || text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else {
      break;
    }
  }
  return at;
}

size_t behind_name(std::string_view text, size_t at) {
  const size_t begin = at;
  while (at < text.size() && is_word_char(text[at])) ++at;
  return at > begin && is_digit(text[begin]) ? begin : at;
}

size_t behind_spaces(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  return at;
}

// Whether "name:", "?name.2:" or a directive stands at `at`.
bool is_lark_statement(std::string_view text, size_t at) {
  if (at < text.size() && text[at] == '%') return true;
  while (at < text.size() && (text[at] == '?' || text[at] == '!')) ++at;
  const size_t end = behind_name(text, at);
  if (end == at) return false;
  size_t next = end;
  if (next < text.size() && text[next] == '.') {
    ++next;
    if (next < text.size() && text[next] == '-') ++next;
    while (next < text.size() && is_digit(text[next])) ++next;
  }
  next = behind_spaces(text, next);
  return text.substr(next).starts_with(':') && !text.substr(next).starts_with("::=");
}

}  // namespace

bool looks_like_lark(std::string_view text) {
  return is_lark_statement(text, behind_blank(text, 0));
}

LarkReader::LarkReader(std::string_view text, const std::string& where,
                       const TextGrammarLimits& limits)
    : GrammarScanner(text, where, limits),
      has_ignored_(text.find(kIgnored) != std::string_view::npos) {
  if (has_ignored_) ignored_rule_ = rule_named(kIgnored, 0);
}

void LarkReader::skip_blank() { at_ = behind_blank(text_, at_); }

std::string_view LarkReader::name_at(size_t at) const {
  return text_.substr(at, behind_name(text_, at) - at);
}

bool LarkReader::is_at_statement() const { return is_lark_statement(text_, at_); }

std::string_view LarkReader::take_name(const char* what) {
  const std::string_view name = name_at(at_);
  if (name.empty()) reject(what, at_);
  at_ += name.size();
  return name;
}

TextRules LarkReader::read() {
  skip_blank();
  while (!is_at_end()) {
    read_statement();
    skip_blank();
  }
  if (!has_ignored_) return finish("start", kExample);
  check_root("start", kExample);
  const size_t any_ignored = add({.kind = Kind::kChoice, .parts = ignored_});
  define(ignored_rule_, ignored_.empty() ? add({}) : add_repeat(any_ignored, 0, kUnbounded));
  // Ignored texts may begin the output too.
  const size_t start = add({.kind = Kind::kRule, .rule = rule_named("start", 0)});
  const size_t ignored = add({.kind = Kind::kRule, .rule = ignored_rule_});
  const std::string_view root = "%start";
  define(rule_named(root, 0), add({.kind = Kind::kSequence, .parts = {ignored, start}}));
  return finish(root, kExample);
}

void LarkReader::read_statement() {
  if (!is_at_statement()) reject("a rule, \"name: ...\", or a directive", at_);
  if (peek() == '%') {
    read_directive();
  } else {
    read_definition();
  }
  skip_blank();
  if (!is_at_end() && !is_at_statement()) reject("a part of a rule or another statement", at_);
}

void LarkReader::read_directive() {
  const size_t begin = at_;
  ++at_;
  const std::string_view name = name_at(at_);
  at_ += name.size();
  skip_blank();
  if (name == "ignore") {
    ignored_.push_back(read_choice(Level::kTerminal, 0));
  } else if (name == "import") {
    read_import();
  } else if (name == "llguidance") {
    const size_t at = at_;
    if (take("{")) {
      skip_blank();
      if (take("}")) return;
    }
    reject("%llguidance {} without options", at);
  } else {
    reject("%ignore, %import or %llguidance", begin);
  }
}

// common.NAME, common.NAME -> ALIAS, common (A, B)
void LarkReader::read_import() {
  const size_t begin = at_;
  if (take_name("the module \"common\"") != "common") reject("the module \"common\"", begin);
  at_ = behind_spaces(text_, at_);
  if (take(".")) {
    const size_t at = at_;
    const std::string_view name = take_name("the name of a terminal");
    const size_t behind = at_;
    skip_blank();
    std::string_view alias = name;
    if (take("->")) {
      skip_blank();
      alias = take_name("a name");
    } else {
      at_ = behind;
    }
    import_terminal(name, alias, at);
    return;
  }
  if (!take("(")) reject("a '.' or a '('", at_);
  do {
    skip_blank();
    const size_t at = at_;
    const std::string_view name = take_name("the name of a terminal");
    import_terminal(name, name, at);
    skip_blank();
  } while (take(","));
  if (!take(")")) reject("a ')'", at_);
}

void LarkReader::import_terminal(std::string_view name, std::string_view alias, size_t at) {
  const std::string_view regex = imported_terminal(name);
  if (regex.empty()) reject("a terminal of Lark's module \"common\"", at);
  if (!is_terminal_name(alias)) reject("a name in capitals for a terminal", at);
  const size_t rule = rule_named(alias, at);
  check_is_new(rule, at);
  define(rule, add({.kind = Kind::kPattern, .text = std::string(regex), .at = at}));
}

void LarkReader::read_definition() {
  while (take("?") || take("!")) {
  }
  const size_t begin = at_;
  const std::string_view name = take_name("the name of a rule");
  const size_t rule = rule_named(name, begin);
  check_is_new(rule, begin);
  // A priority chooses among trees, and texts have none.
  if (take(".")) {
    take("-");
    read_number();
  }
  at_ = behind_spaces(text_, at_);
  if (!take(":")) reject("a ':'", at_);
  define(rule, read_choice(is_terminal_name(name) ? Level::kTerminal : Level::kRule, 0));
}

size_t LarkReader::read_choice(Level level, int depth) {
  RuleNode choice = {.kind = Kind::kChoice};
  do {
    choice.parts.push_back(read_sequence(level, depth));
  } while (take("|"));
  return choice.parts.size() == 1 ? choice.parts.front() : add(std::move(choice));
}

size_t LarkReader::read_sequence(Level level, int depth) {
  RuleNode sequence;
  const auto is_at_end_of_sequence = [this] {
    return is_at_end() || peek() == '|' || peek() == ')' || peek() == ']' || is_next("->") ||
           is_at_statement();
  };
  skip_blank();
  while (!is_at_end_of_sequence()) {
    sequence.parts.push_back(read_quantified(level, depth));
    skip_blank();
  }
  if (take("->")) {
    skip_blank();
    take_name("the name of an alias");
    skip_blank();
  }
  return sequence.parts.size() == 1 ? sequence.parts.front() : add(std::move(sequence));
}

size_t LarkReader::read_quantified(Level level, int depth) {
  const size_t item = read_item(level, depth);
  const std::optional<RepeatCount> count = read_count();
  if (!count) return item;
  const size_t at = at_;
  if (read_count()) reject("one quantifier, or parentheses around the first,", at);
  return add_repeat(item, count->min, count->max);
}

std::optional<RepeatCount> LarkReader::read_count() {
  const size_t begin = at_;
  at_ = behind_spaces(text_, at_);
  const size_t at = at_;
  const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  const bool is_next_rule = peek() == '?' && (is_lower(next) || next == '_');
  std::optional<RepeatCount> count;
  if (!is_next_rule) count = count_of_sign(peek());
  if (count) {
    ++at_;
  } else if (take("~")) {
    skip_blank();
    const int32_t min = read_number();
    count = {min, take("..") ? read_number() : min};
  } else if (peek() == '{' && (is_digit(next) || next == ',')) {
    ++at_;
    const int32_t min = peek() == ',' ? 0 : read_number();
    count = {min, min};
    if (take(",")) count->max = peek() == '}' ? kUnbounded : read_number();
    if (!take("}")) reject("a '}' behind the counts", at_);
  } else {
    at_ = begin;
    return std::nullopt;
  }
  if (count->max < count->min) reject("counts in ascending order", at);
  return count;
}

size_t LarkReader::read_item(Level level, int depth) {
  if (take("(")) return read_group(level, depth, ")");
  if (take("[")) return add_repeat(read_group(level, depth, "]"), 0, 1);
  const bool is_rule = level == Level::kRule;
  if (peek() == '"' || peek() == '/') {
    const size_t lexeme = peek() == '"' ? read_text() : read_regex();
    return is_rule ? with_ignored(lexeme) : lexeme;
  }
  if (!is_letter(peek()) && peek() != '_') {
    reject("a text, a regular expression, a group or a name", at_);
  }
  return read_reference(level);
}

size_t LarkReader::read_group(Level level, int depth, std::string_view end) {
  check_depth(depth);
  const size_t body = read_choice(level, depth + 1);
  if (!take(end)) reject(str("a '", end, "'"), at_);
  return body;
}

size_t LarkReader::read_reference(Level level) {
  const size_t begin = at_;
  const std::string_view name = take_name("a name");
  const bool is_terminal = is_terminal_name(name);
  if (level == Level::kTerminal && !is_terminal) reject("no rule in a terminal", begin);
  if (peek() == '{' && at_ + 1 < text_.size() && !is_digit(text_[at_ + 1]) &&
      text_[at_ + 1] != ',') {
    reject("no template", begin);
  }
  const size_t node = add({.kind = Kind::kRule, .rule = rule_named(name, begin)});
  return level == Level::kRule && is_terminal ? with_ignored(node) : node;
}

size_t LarkReader::with_ignored(size_t lexeme) {
  if (!has_ignored_) return lexeme;
  const size_t ignored = add({.kind = Kind::kRule, .rule = ignored_rule_});
  return add({.kind = Kind::kSequence, .parts = {lexeme, ignored}});
}

std::string LarkReader::read_quoted() {
  std::string text;
  if (!take("\"")) reject("a '\"'", at_);
  while (!take("\"")) {
    if (is_at_end() || peek() == '\n') reject("a '\"' that ends the text", at_);
    append_utf8(text, read_char());
  }
  return text;
}

size_t LarkReader::read_text() {
  const size_t begin = at_;
  std::string text = read_quoted();
  if (is_next("..")) return read_range_from(text, begin);
  const bool ignores_case = peek() == 'i' && name_at(at_) == "i" && take("i");
  if (!ignores_case) return add({.kind = Kind::kText, .text = std::move(text)});
  RuleNode sequence;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char next = first_char(rest);
    rest.remove_prefix(next.num_bytes);
    sequence.parts.push_back(
        add({.kind = Kind::kChars, .chars = with_other_case(CharSet::of(next.code))}));
  }
  return add(std::move(sequence));
}

size_t LarkReader::read_range_from(const std::string& first, size_t at) {
  take("..");
  const std::string last = read_quoted();
  const auto code_of = [&](const std::string& text) -> uint32_t {
    if (text.empty() || first_char(text).num_bytes != text.size()) {
      reject("a range of two characters", at);
    }
    return first_char(text).code;
  };
  const uint32_t from = code_of(first);
  const uint32_t to = code_of(last);
  if (to < from) reject("a range of ascending characters", at);
  return add({.kind = Kind::kChars, .chars = CharSet({{from, to}})});
}

size_t LarkReader::read_regex() {
  RuleNode node = {.kind = Kind::kPattern, .at = at_};
  const size_t begin = ++at_;
  while (peek() != '/') {
    if (peek() == '\\') ++at_;
    if (at_ >= text_.size() || peek() == '\n') {
      reject("a '/' that ends the regular expression", std::min(at_, text_.size()));
    }
    ++at_;
  }
  node.text = text_.substr(begin, at_ - begin);
  if (node.text.empty()) reject("a regular expression", begin - 1);
  ++at_;
  for (; is_letter(peek()); ++at_) {
    if (peek() == 'i') {
      node.ignores_case = true;
    } else if (peek() == 's') {
      node.dot_is_any_char = true;
    } else if (peek() != 'm' && peek() != 'u') {  // these two change nothing here
      reject("the flags i, s, m and u", at_);
    }
  }
  return add(std::move(node));
}

}  // namespace halley
