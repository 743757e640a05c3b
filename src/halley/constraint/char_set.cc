#include "halley/constraint/char_set.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace halley {
namespace {

constexpr uint32_t kSurrogateFirst = 0xD800;
constexpr uint32_t kSurrogateLast = 0xDFFF;

struct ShortEscape {
  uint32_t code;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

std::vector<CharSet::Range> normalized(std::vector<CharSet::Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CharSet::Range> merged;
  for (const CharSet::Range& range : ranges) {
    if (range.first > range.last) continue;
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::vector<CharSet::Range> without_surrogates(const std::vector<CharSet::Range>& ranges) {
  std::vector<CharSet::Range> kept;
  for (const CharSet::Range& range : ranges) {
    if (range.first < kSurrogateFirst) {
      kept.push_back({range.first, std::min(range.last, kSurrogateFirst - 1)});
    }
    if (range.last > kSurrogateLast) {
      kept.push_back({std::max(range.first, kSurrogateLast + 1), range.last});
    }
  }
  return kept;
}

uint8_t byte_of(uint32_t value) { return static_cast<uint8_t>(value); }

// Byte i of the UTF-8 encoding of `code`, which has `num_bytes`.
uint8_t utf8_byte(uint32_t code, int num_bytes, int i) {
  constexpr std::array<uint32_t, 5> kLead = {0, 0, 0xC0, 0xE0, 0xF0};
  const int shift = 6 * (num_bytes - 1 - i);
  if (i == 0) return byte_of(kLead[static_cast<size_t>(num_bytes)] | code >> shift);
  return byte_of(0x80 | (code >> shift & 0x3F));
}

// Characters first..last, which have `num_bytes` each. The range is split so that each part is a
// sequence of byte ranges: where bytes after the first difference do not cover all 64 values.
void append_utf8_range(GrammarBuilder& builder, CharSet::Range range, int num_bytes,
                       std::vector<ExprId>& choices) {
  for (int i = 1; i < num_bytes; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((range.first & ~mask) == (range.last & ~mask)) continue;
    if ((range.first & mask) != 0) {
      append_utf8_range(builder, {range.first, range.first | mask}, num_bytes, choices);
      append_utf8_range(builder, {(range.first | mask) + 1, range.last}, num_bytes, choices);
      return;
    }
    if ((range.last & mask) != mask) {
      append_utf8_range(builder, {range.first, (range.last & ~mask) - 1}, num_bytes, choices);
      append_utf8_range(builder, {range.last & ~mask, range.last}, num_bytes, choices);
      return;
    }
  }
  std::vector<ExprId> bytes;
  for (int i = 0; i < num_bytes; ++i) {
    bytes.push_back(builder.byte_range(utf8_byte(range.first, num_bytes, i),
                                       utf8_byte(range.last, num_bytes, i)));
  }
  choices.push_back(builder.sequence(bytes));
}

void append_utf8_chars(GrammarBuilder& builder, const CharSet& chars,
                       std::vector<ExprId>& choices) {
  constexpr std::array<uint32_t, 5> kLast = {0, 0x7F, 0x7FF, 0xFFFF, kCodePointMax};
  ByteSet ascii;
  for (const CharSet::Range& range : chars.ranges()) {
    for (uint32_t code = range.first; code <= std::min<uint32_t>(range.last, 0x7F); ++code) {
      ascii.set(code);
    }
  }
  if (ascii.any()) choices.push_back(builder.bytes(ascii));
  for (const CharSet::Range& range : chars.ranges()) {
    for (int num_bytes = 2; num_bytes <= 4; ++num_bytes) {
      const auto n = static_cast<size_t>(num_bytes);
      const CharSet::Range part = {std::max(range.first, kLast[n - 1] + 1),
                                   std::min(range.last, kLast[n])};
      if (part.first <= part.last) append_utf8_range(builder, part, num_bytes, choices);
    }
  }
}

ExprId one_of(GrammarBuilder& builder, std::string_view bytes) {
  ByteSet set;
  for (const char byte : bytes) set.set(static_cast<uint8_t>(byte));
  return builder.bytes(set);
}

constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";

ExprId hex_digit(GrammarBuilder& builder, uint32_t digit) {
  std::string both = {kHexDigits[digit]};
  if (digit >= 10) both += kHexDigits[digit + 6];
  return one_of(builder, both);
}

}  // namespace

CharSet::CharSet(std::vector<Range> ranges)
    : ranges_(without_surrogates(normalized(std::move(ranges)))) {}

bool CharSet::has(uint32_t code) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& range) { return range.first <= code && code <= range.last; });
}

CharSet CharSet::united(const CharSet& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(ranges));
}

CharSet CharSet::complement() const {
  std::vector<Range> gaps;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodePointMax) gaps.push_back({next, kCodePointMax});
  return CharSet(std::move(gaps));
}

CharSet CharSet::without(const CharSet& other) const {
  return complement().united(other).complement();
}

CharSet with_other_case(const CharSet& chars) {
  std::vector<CharSet::Range> ranges = chars.ranges();
  for (uint32_t letter = 'a'; letter <= 'z'; ++letter) {
    const uint32_t capital = letter - 'a' + 'A';
    if (chars.has(letter)) ranges.push_back({capital, capital});
    if (chars.has(capital)) ranges.push_back({letter, letter});
  }
  return CharSet(std::move(ranges));
}

CharSet plain_json_chars() {
  return CharSet({{0x20, kCodePointMax}}).without(CharSet::of('"').united(CharSet::of('\\')));
}

ExprId utf8_char(GrammarBuilder& builder, const CharSet& chars) {
  std::vector<ExprId> choices;
  append_utf8_chars(builder, chars, choices);
  return builder.choice(choices);
}

ExprId json_char(GrammarBuilder& builder, const CharSet& chars) {
  const CharSet plain = plain_json_chars();
  const CharSet escaped = chars.without(plain);
  std::vector<ExprId> choices;
  append_utf8_chars(builder, chars.without(plain.complement()), choices);
  std::string letters;
  std::vector<ExprId> codes;
  for (const CharSet::Range& range : escaped.ranges()) {
    for (uint32_t code = range.first; code <= range.last; ++code) {
      const auto* const found = std::find_if(std::begin(kShortEscapes), std::end(kShortEscapes),
                                             [&](const ShortEscape& e) { return e.code == code; });
      if (found != std::end(kShortEscapes)) {
        letters += found->letter;
      } else {
        codes.push_back(builder.sequence(
            {builder.text(code < 16 ? "\\u000" : "\\u001"), hex_digit(builder, code % 16)}));
      }
    }
  }
  if (!letters.empty()) {
    choices.push_back(builder.sequence({builder.text("\\"), one_of(builder, letters)}));
  }
  choices.insert(choices.end(), codes.begin(), codes.end());
  return builder.choice(choices);
}

ExprId any_json_char(GrammarBuilder& builder) {
  const ExprId hex = one_of(builder, kHexDigits);
  const ExprId d = one_of(builder, "dD");
  const ExprId low_half = builder.sequence({d, one_of(builder, "cdefCDEF"), hex, hex});
  // \uXXXX that is no surrogate: the first digit is not d, or the second is below 8.
  const ExprId alone =
      builder.choice({builder.sequence({one_of(builder, "0123456789abcefABCEF"), hex, hex, hex}),
                      builder.sequence({d, one_of(builder, "01234567"), hex, hex})});
  const ExprId pair =
      builder.sequence({d, one_of(builder, "89abAB"), hex, hex, builder.text("\\u"), low_half});
  const ExprId code = builder.sequence({builder.text("u"), builder.choice({alone, pair})});
  const ExprId escape =
      builder.sequence({builder.text("\\"), builder.choice({one_of(builder, "\"\\/bfnrt"), code})});
  return builder.choice({utf8_char(builder, plain_json_chars()), escape});
}

}  // namespace halley
