#include "halley/checkpoint/tokenizer/oniguruma.h"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/oniguruma_property.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr size_t kPatternBytesMax = 32768;
constexpr int kClassDepthMax = 8;

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

std::string code_literal(uint32_t code) {
  char digits[16];
  snprintf(digits, sizeof(digits), "\\x{%X}", code);
  return digits;
}

// One operand of && in a class: the union of plain items and of nested classes.
struct ClassUnion {
  std::string items;                // inside the brackets of a PCRE2 class
  std::vector<std::string> nested;  // patterns that match one character each

  std::string pattern() const {
    if (nested.empty()) return items.empty() ? "(?!)" : str("[", items, "]");
    std::string result = "(?:";
    if (!items.empty()) result += str("[", items, "]|");
    for (size_t i = 0; i < nested.size(); ++i) result += (i > 0 ? "|" : "") + nested[i];
    return result + ")";
  }
};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (pos_ < pattern_.size()) step();
    if (!groups_.empty()) fail("expected ) for every (, one is missing");
    close_options(num_open_options_);
    return std::move(out_);
  }

 private:
  struct Group {
    size_t begin;          // where the group starts in out_
    int num_open_options;  // of the group around it
  };

  [[noreturn]] void fail(const std::string& text) const {
    throw InputError(
        str(where_, ": ", text, " at byte ", pos_, " of the pattern ", quote(pattern_), "."));
  }

  [[noreturn]] void reject(std::string_view construct) const {
    throw UnsupportedError(str(where_, ": the construct ", quote(construct), " at byte ", pos_,
                               " of the pattern ", quote(pattern_),
                               " is not supported. Write the pattern without it."));
  }

  bool at_end() const { return pos_ >= pattern_.size(); }
  char peek(size_t ahead = 0) const {
    return pos_ + ahead < pattern_.size() ? pattern_[pos_ + ahead] : '\0';
  }
  bool consume(std::string_view text) {
    if (!pattern_.substr(pos_).starts_with(text)) return false;
    pos_ += text.size();
    return true;
  }

  void add_atom(std::string_view text) {
    atom_begin_ = out_.size();
    is_quantified_ = false;
    out_ += text;
  }

  void close_options(int count) { out_.append(static_cast<size_t>(count), ')'); }

  void step() {
    const char c = peek();
    switch (c) {
      case '\\':
        return escape();
      case '[':
        ++pos_;
        return add_atom(char_class(0));
      case '(':
        return open_group();
      case ')':
        return close_group();
      case '|':
        ++pos_;
        out_ += '|';
        atom_begin_.reset();
        return;
      case '*':
      case '+':
      case '?':
        ++pos_;
        return quantifier(std::string(1, c), /*may_be_possessive=*/true);
      case '{':
        return interval();
      case '^':
      case '$':
      case '.':
        ++pos_;
        return add_atom(std::string_view(&c, 1));
      default:
        break;
    }
    const Utf8Char next = first_char(pattern_.substr(pos_));
    add_atom(code_literal_or_plain(next.code));
    pos_ += next.num_bytes;
  }

  static std::string code_literal_or_plain(uint32_t code) {
    if (code < 0x80 &&
        (is_ascii_letter(static_cast<char>(code)) || is_ascii_digit(static_cast<char>(code)))) {
      return std::string(1, static_cast<char>(code));
    }
    return code_literal(code);
  }

  // `{n}`, `{n,}`, `{n,m}`, `{,m}`; anything else is a literal brace.
  void interval() {
    size_t end = pos_ + 1;
    std::string bounds[2];
    int index = 0;
    while (end < pattern_.size() && (is_ascii_digit(pattern_[end]) || pattern_[end] == ',')) {
      if (pattern_[end] == ',') {
        if (++index > 1) break;
      } else {
        bounds[index] += pattern_[end];
      }
      ++end;
    }
    const bool is_interval = end < pattern_.size() && pattern_[end] == '}' && index <= 1 &&
                             !(bounds[0].empty() && bounds[1].empty());
    if (!is_interval) {
      ++pos_;
      return add_atom("\\{");
    }
    pos_ = end + 1;
    const bool is_exact = index == 0;
    const std::string low = bounds[0].empty() ? "0" : bounds[0];
    if (is_exact) return quantifier(str("{", low, "}"), /*may_be_possessive=*/false);
    quantifier(str("{", low, ",", bounds[1], "}"), /*may_be_possessive=*/false);
    // Lazy; {n}? on the other hand is an optional {n} and reads as a second quantifier.
    if (consume("?")) out_ += '?';
  }

  void quantifier(const std::string& text, bool may_be_possessive) {
    if (!atom_begin_) fail("expected something to repeat before the quantifier");
    if (is_quantified_) {
      out_.insert(*atom_begin_, "(?:");
      out_ += ')';
    }
    out_ += text;
    is_quantified_ = true;
    if (!may_be_possessive) return;
    if (consume("?")) {
      out_ += '?';
    } else if (consume("+")) {
      out_ += '+';
    }
  }

  void open_group() {
    ++pos_;
    if (peek() == '*') reject("(*");
    if (peek() != '?') return push_group("(");
    ++pos_;
    if (consume("#")) {
      while (!at_end() && peek() != ')') ++pos_;
      if (!consume(")")) fail("expected ) at the end of a comment");
      return;
    }
    for (const std::string_view kind : {":", "=", "!", ">", "<=", "<!"}) {
      if (consume(kind)) return push_group(str("(?", kind));
    }
    if (consume("<")) {
      std::string name;
      while (is_ascii_letter(peek()) || is_ascii_digit(peek()) || peek() == '_') {
        name += pattern_[pos_++];
      }
      if (name.empty() || !consume(">")) reject("(?<");
      return push_group(str("(?<", name, ">"));
    }
    options();
  }

  // (?im-im) holds up to the end of the group around it, alternatives included; (?im-im:...) is a
  // group of its own. Ruby's m is the s of PCRE2.
  void options() {
    std::string text = "(?";
    while (peek() == 'i' || peek() == 'm' || peek() == '-') {
      text += peek() == 'm' ? 's' : peek();
      ++pos_;
    }
    if (consume(":")) return push_group(text + ":");
    if (!consume(")")) reject(str("(?", std::string(1, peek())));
    out_ += text + ":";
    ++num_open_options_;
    atom_begin_.reset();
  }

  void push_group(const std::string& text) {
    groups_.push_back({out_.size(), num_open_options_});
    num_open_options_ = 0;
    out_ += text;
    atom_begin_.reset();
  }

  void close_group() {
    if (groups_.empty()) fail("expected ( before )");
    ++pos_;
    close_options(num_open_options_);
    out_ += ')';
    const Group group = groups_.back();
    groups_.pop_back();
    num_open_options_ = group.num_open_options;
    atom_begin_ = group.begin;
    is_quantified_ = false;
  }

  void escape() {
    const char c = peek(1);
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S':
      case 'h':
      case 'H':
        pos_ += 2;
        return add_atom(set_pattern(onig_type_set(c)));
      case 'b':
      case 'B':
        pos_ += 2;
        return add_atom(word_boundary(c == 'B'));
      case 'A':
      case 'Z':
      case 'z':
      case 'R':
      case 'X':
        pos_ += 2;
        return add_atom(str("\\", std::string(1, c)));
      case 'p':
      case 'P':
        return add_atom(set_pattern(property()));
      default:
        break;
    }
    if (c >= '1' && c <= '9' && !is_ascii_digit(peek(2))) {
      pos_ += 2;
      return add_atom(str("\\g{", std::string(1, c), "}"));
    }
    add_atom(code_literal(escaped_code()));
  }

  static std::string set_pattern(const PropertySet& set) {
    return str(set.is_negated ? "[^" : "[", set.items, "]");
  }

  static std::string word_boundary(bool is_negated) {
    const std::string word = set_pattern(onig_type_set('w'));
    const std::string edge = str("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))");
    return is_negated ? str("(?!", edge, ")") : edge;
  }

  PropertySet property() {
    const bool is_capital = peek(1) == 'P';
    if (peek(2) != '{') reject(pattern_.substr(pos_, 3));
    const size_t begin = pos_ + 3;
    const size_t end = pattern_.find('}', begin);
    if (end == std::string_view::npos) fail("expected } after \\p{");
    PropertySet set = onig_property_set(pattern_.substr(begin, end - begin), where_);
    pos_ = end + 1;
    if (is_capital) set.is_negated = !set.is_negated;
    return set;
  }

  // An escape that stands for one character.
  uint32_t escaped_code() {
    ++pos_;
    if (at_end()) fail("expected a character after the backslash");
    const Utf8Char next = first_char(pattern_.substr(pos_));
    const char c = next.code < 0x80 ? static_cast<char>(next.code) : '\0';
    if (c == 'x' || c == 'u') return hex_code();
    if (c == '0' && !is_ascii_digit(peek(1))) {
      ++pos_;
      return 0;
    }
    constexpr std::string_view kNames = "tnrfvae";
    constexpr std::string_view kCodes = "\t\n\r\f\v\a\x1B";
    if (const size_t index = kNames.find(c); c != '\0' && index != std::string_view::npos) {
      ++pos_;
      return static_cast<uint32_t>(kCodes[index]);
    }
    if (is_ascii_letter(c) || is_ascii_digit(c)) reject(pattern_.substr(pos_ - 1, 2));
    pos_ += next.num_bytes;
    return next.code;
  }

  // \xHH, \x{H...} or \uHHHH, from the letter on.
  uint32_t hex_code() {
    const bool is_braced = peek() == 'x' && peek(1) == '{';
    const size_t num_digits_max = peek() == 'u' ? 4 : is_braced ? 8 : 2;
    pos_ += is_braced ? 2 : 1;
    uint64_t code = 0;
    size_t num_digits = 0;
    for (; num_digits < num_digits_max; ++num_digits, ++pos_) {
      const char c = peek();
      const int digit = is_ascii_digit(c)        ? c - '0'
                        : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                        : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                 : -1;
      if (digit < 0) break;
      code = code * 16 + static_cast<uint64_t>(digit);
    }
    if (num_digits == 0 || (is_braced && !consume("}"))) fail("expected hexadecimal digits");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("expected a character's code");
    // Two digits are a byte, not a character.
    if (num_digits_max == 2 && code >= 0x80) reject("\\x80 to \\xFF");
    return static_cast<uint32_t>(code);
  }

  // From behind the [ to behind the ]; a pattern that matches one character.
  std::string char_class(int depth) {
    if (depth >= kClassDepthMax) fail(str("expected at most ", kClassDepthMax, " nested sets"));
    const bool is_negated = consume("^");
    std::vector<ClassUnion> operands(1);
    bool is_first = true;
    while (is_first || peek() != ']') {
      if (at_end()) fail("expected ] at the end of a set");
      if (consume("&&")) {
        operands.emplace_back();
      } else {
        class_item(operands.back(), depth);
      }
      is_first = false;
    }
    ++pos_;
    if (operands.size() == 1 && operands[0].nested.empty() && is_negated) {
      return str("[^", operands[0].items, "]");
    }
    std::string result = operands.back().pattern();
    if (operands.size() > 1) {
      std::string conditions;
      for (size_t i = 0; i + 1 < operands.size(); ++i) {
        conditions += str("(?=", operands[i].pattern(), ")");
      }
      result = str("(?:", conditions, result, ")");
    }
    return is_negated ? str("(?:(?!", result, ")(?s:.))") : result;
  }

  void add_set(ClassUnion& set, const PropertySet& added) {
    if (added.is_negated) {
      set.nested.push_back(set_pattern(added));
    } else {
      set.items += added.items;
    }
  }

  void class_item(ClassUnion& set, int depth) {
    if (peek() == '[' && peek(1) == ':') return posix_item(set);
    if (consume("[")) {
      set.nested.push_back(char_class(depth + 1));
      return;
    }
    if (peek() == '\\') {
      const char c = peek(1);
      if (c == 'p' || c == 'P') return add_set(set, property());
      if (std::string_view("dDwWsShH").find(c) != std::string_view::npos && c != '\0') {
        pos_ += 2;
        return add_set(set, onig_type_set(c));
      }
    }
    const uint32_t first = class_char();
    set.items += code_literal(first);
    const bool is_range = peek() == '-' && peek(1) != ']' && peek(1) != '\0';
    if (!is_range) return;
    ++pos_;
    if (peek() == '[') fail("expected a character at the end of a range");
    const uint32_t last = class_char();
    if (last < first) fail("expected a range that ends behind its start");
    set.items += str("-", code_literal(last));
  }

  uint32_t class_char() {
    if (peek() == '\\') {
      if (peek(1) == 'b') {
        pos_ += 2;
        return 8;
      }
      return escaped_code();
    }
    const Utf8Char next = first_char(pattern_.substr(pos_));
    pos_ += next.num_bytes;
    return next.code;
  }

  void posix_item(ClassUnion& set) {
    const size_t end = pattern_.find(":]", pos_ + 2);
    if (end == std::string_view::npos) fail("expected :] after [:");
    const std::string_view name = pattern_.substr(pos_ + 2, end - pos_ - 2);
    if (name == "graph" || name == "print") reject(str("[:", name, ":]"));
    const PropertySet added = onig_property_set(name, where_);
    pos_ = end + 2;
    add_set(set, added);
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t pos_ = 0;
  std::string out_;
  std::optional<size_t> atom_begin_;  // what a quantifier would repeat
  bool is_quantified_ = false;
  std::vector<Group> groups_;
  int num_open_options_ = 0;  // (?i: groups that end with the group around them
};

}  // namespace

std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where) {
  if (pattern.size() > kPatternBytesMax) {
    throw InputError(str(where, ": expected a pattern of at most ", kPatternBytesMax,
                         " bytes, got ", pattern.size(), "."));
  }
  return Translator(pattern, where).run();
}

}  // namespace halley
