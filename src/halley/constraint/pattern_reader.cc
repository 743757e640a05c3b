#include "halley/constraint/pattern_reader.h"

#include <algorithm>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

CharSet digits() { return CharSet({{'0', '9'}}); }
CharSet word_chars() { return CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
// WhiteSpace and LineTerminator of ECMA-262, sections 12.2 and 12.3.
CharSet spaces() {
  return CharSet({{'\t', '\r'},
                  {' ', ' '},
                  {0xA0, 0xA0},
                  {0x1680, 0x1680},
                  {0x2000, 0x200A},
                  {0x2028, 0x2029},
                  {0x202F, 0x202F},
                  {0x205F, 0x205F},
                  {0x3000, 0x3000},
                  {0xFEFF, 0xFEFF}});
}
CharSet line_ends() { return CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

std::optional<CharSet> class_of_letter(char letter) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return digits().complement();
    case 'w':
      return word_chars();
    case 'W':
      return word_chars().complement();
    case 's':
      return spaces();
    case 'S':
      return spaces().complement();
    default:
      return std::nullopt;
  }
}

bool is_letter_or_digit(char c) {
  return ('0' <= c && c <= '9') || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z');
}

std::optional<uint32_t> hex_value(char c) {
  if ('0' <= c && c <= '9') return static_cast<uint32_t>(c - '0');
  if ('a' <= c && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
  if ('A' <= c && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
  return std::nullopt;
}

}  // namespace

void PatternReader::reject(const std::string& expectation) const {
  throw InputError(
      str(where_, ": expected ", expectation, " at byte ", at_, " of ", quote(pattern_), "."));
}

void PatternReader::reject_unsupported(const std::string& what) const {
  throw UnsupportedError(str(where_, ": ", what, " at byte ", at_, " of ", quote(pattern_),
                             " is not supported. Write the pattern without it."));
}

void PatternReader::reject_anchor() const {
  reject_unsupported("an anchor that is not at the beginning or the end of the pattern");
}

bool PatternReader::take(char sign) {
  if (is_at_end() || pattern_[at_] != sign) return false;
  ++at_;
  return true;
}

uint32_t PatternReader::take_char() {
  const Utf8Char next = first_char(pattern_.substr(at_));
  at_ += next.num_bytes;
  return next.code;
}

std::optional<int32_t> PatternReader::take_number() {
  if (is_at_end() || hex_value(peek()).value_or(10) > 9) return std::nullopt;
  int64_t number = 0;
  while (!is_at_end() && hex_value(peek()).value_or(10) <= 9) {
    number = number * 10 + (pattern_[at_] - '0');
    if (number > kRepeatMax) reject(str("counts of at most ", kRepeatMax, ", got a larger one"));
    ++at_;
  }
  return static_cast<int32_t>(number);
}

std::optional<RepeatCount> PatternReader::take_count() {
  std::optional<RepeatCount> count = count_of_sign(peek());
  if (count) {
    ++at_;
  } else if (take('{')) {
    const std::optional<int32_t> min = take_number();
    if (!min) reject("a number behind '{' (\\{ is the sign itself)");
    const bool has_comma = take(',');
    count = {*min, has_comma ? take_number().value_or(kUnbounded) : *min};
    if (!take('}')) reject("a '}' behind a count");
    if (count->max < count->min) reject("counts in ascending order");
  } else {
    return std::nullopt;
  }
  take('?');
  if (count_of_sign(peek()) || peek() == '{') reject("one count at a time");
  return count;
}

void PatternReader::take_group_head() {
  if (!take('?')) return;
  if (take(':')) return;
  take('P');  // Python's (?P<name>
  if (!take('<') || peek() == '=' || peek() == '!') reject_unsupported("a group with (?");
  const size_t end = pattern_.find('>', at_);
  if (end == std::string_view::npos) reject("a '>' behind the name of a group");
  at_ = end + 1;
}

CharSet PatternReader::take_char_set() {
  const char sign = peek();
  switch (sign) {
    case '^':
    case '$':
      reject_anchor();
    case '*':
    case '+':
    case '?':
    case '{':
      reject("something to repeat before a count");
    case '.':
      take('.');
      return dot_is_any_char_ ? CharSet::all() : line_ends().complement();
    case '[':
      take('[');
      return take_class();
    case '\\':
      take('\\');
      return take_escape();
    default:
      return CharSet::of(take_char());
  }
}

CharSet PatternReader::take_class_item() {
  if (take('\\')) return take_escape();
  return CharSet::of(take_char());
}

CharSet PatternReader::take_class() {
  const bool is_negated = take('^');
  std::vector<CharSet::Range> ranges;
  while (peek() != ']' || is_at_end()) {
    if (is_at_end()) reject("a ']' behind a '['");
    const CharSet item = take_class_item();
    const bool is_one_char =
        item.ranges().size() == 1 && item.ranges()[0].first == item.ranges()[0].last;
    const bool is_range = peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
    if (!is_range) {
      ranges.insert(ranges.end(), item.ranges().begin(), item.ranges().end());
      continue;
    }
    take('-');
    const CharSet last = take_class_item();
    if (!is_one_char || last.ranges().size() != 1 ||
        last.ranges()[0].first != last.ranges()[0].last ||
        item.ranges()[0].first > last.ranges()[0].first) {
      reject("a range of two characters in ascending order before here");
    }
    ranges.push_back({item.ranges()[0].first, last.ranges()[0].first});
  }
  take(']');
  const CharSet chars(std::move(ranges));
  return is_negated ? chars.complement() : chars;
}

uint32_t PatternReader::take_hex(size_t num_digits) {
  uint32_t value = 0;
  for (size_t i = 0; i < num_digits; ++i) {
    const std::optional<uint32_t> digit = hex_value(peek());
    if (!digit) reject(str(num_digits, " hexadecimal digits"));
    value = value * 16 + *digit;
    ++at_;
  }
  return value;
}

uint32_t PatternReader::take_unicode_escape() {
  if (!take('{')) {
    const uint32_t high = take_hex(4);
    if (high < 0xD800 || high > 0xDBFF) return high;
    if (!take('\\') || !take('u')) reject("\\u and the second half of a surrogate pair");
    const uint32_t low = take_hex(4);
    if (low < 0xDC00 || low > 0xDFFF) reject("the second half of a surrogate pair before here");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }
  uint32_t value = take_hex(1);
  while (!take('}')) {
    value = value * 16 + take_hex(1);
    if (value > kCodePointMax) reject("a character of at most 10FFFF before here");
  }
  return value;
}

std::optional<uint32_t> PatternReader::take_control_escape(char letter) {
  switch (letter) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'v':
      return '\v';
    case 'f':
      return '\f';
    case 'r':
      return '\r';
    case 'x':
      return take_hex(2);
    case 'u':
      return take_unicode_escape();
    case 'c': {
      const char control = peek();
      if (is_at_end() || !is_letter_or_digit(control) || control <= '9') {
        reject("a letter behind \\c");
      }
      ++at_;
      return static_cast<uint32_t>(control % 32);
    }
    case '0':
      if (hex_value(peek()).value_or(10) <= 9) reject_unsupported("an octal escape");
      return 0;
    default:
      return std::nullopt;
  }
}

CharSet PatternReader::take_escape() {
  if (is_at_end()) reject("a character behind '\\'");
  const char letter = peek();
  if (!is_letter_or_digit(letter)) return CharSet::of(take_char());
  ++at_;
  if (std::optional<CharSet> chars = class_of_letter(letter)) return *chars;
  if (const std::optional<uint32_t> code = take_control_escape(letter)) return CharSet::of(*code);
  reject_unsupported(str("the escape \\", letter));
}

}  // namespace halley
