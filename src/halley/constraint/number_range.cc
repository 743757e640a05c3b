#include "halley/constraint/number_range.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halley {
namespace {

constexpr int64_t kLargest = 999'999'999'999'999'999;  // kIntegerDigitsMax digits

ExprId digit_range(GrammarBuilder& builder, char first, char last) {
  return builder.byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}

ExprId any_digits(GrammarBuilder& builder, size_t count) {
  const auto n = static_cast<int32_t>(count);
  return builder.repeat(digit_range(builder, '0', '9'), n, n);
}

bool is_all(std::string_view text, char digit) {
  return std::all_of(text.begin(), text.end(), [&](char c) { return c == digit; });
}

// Numbers from `min` to `max`, which have the same number of digits. Each call handles one digit,
// and only calls with an effective bound recurse: at most two for each digit.
ExprId same_length_range(GrammarBuilder& builder, std::string_view min, std::string_view max) {
  if (min.empty()) return builder.empty();
  if (is_all(min, '0') && is_all(max, '9')) return any_digits(builder, min.size());
  const std::string_view min_rest = min.substr(1);
  const std::string_view max_rest = max.substr(1);
  const auto head = [&](char digit, ExprId rest) {
    return builder.sequence({digit_range(builder, digit, digit), rest});
  };
  if (min[0] == max[0]) {
    return head(min[0], same_length_range(builder, min_rest, max_rest));
  }
  const std::string nines(min_rest.size(), '9');
  const std::string zeros(min_rest.size(), '0');
  std::vector<ExprId> choices;
  char first = min[0];
  char last = max[0];
  if (!is_all(min_rest, '0')) {
    choices.push_back(head(first++, same_length_range(builder, min_rest, nines)));
  }
  if (!is_all(max_rest, '9')) {
    choices.push_back(head(last--, same_length_range(builder, zeros, max_rest)));
  }
  if (first <= last) {
    choices.push_back(builder.sequence(
        {digit_range(builder, first, last), any_digits(builder, min_rest.size())}));
  }
  return builder.choice(choices);
}

// 0 <= min <= max <= kLargest.
void append_natural_range(GrammarBuilder& builder, int64_t min, int64_t max,
                          std::vector<ExprId>& choices) {
  const std::string first = std::to_string(min);
  const std::string last = std::to_string(max);
  for (size_t length = first.size(); length <= last.size(); ++length) {
    const std::string smallest = length == 1 ? "0" : "1" + std::string(length - 1, '0');
    choices.push_back(same_length_range(builder, length == first.size() ? first : smallest,
                                        length == last.size() ? last : std::string(length, '9')));
  }
}

// Digits behind a point: those that are not empty, and whether none may stand there, which is 0.
struct Fraction {
  ExprId digits = 0;
  bool may_be_empty = false;
};

// The digits of a bound that still counts, and whether the bound itself is out.
struct FractionBound {
  std::string_view digits;
  bool is_exclusive = false;

  char digit() const { return digits.empty() ? '0' : digits.front(); }
  FractionBound rest() const { return {digits.substr(digits.empty() ? 0 : 1), is_exclusive}; }
};

// Fractions between bounds, which are compared digit by digit. Only calls with a bound that still
// counts recurse: at most two for each digit.
Fraction fraction_range(GrammarBuilder& builder, const std::optional<FractionBound>& low,
                        const std::optional<FractionBound>& high, int32_t num_digits) {
  const bool is_above = !low || (low->digits.empty() && !low->is_exclusive);
  const bool is_below = !high || !high->digits.empty() || !high->is_exclusive;
  Fraction fraction = {builder.nothing(), is_above && is_below};
  if (num_digits == 0) return fraction;
  if (!low && !high) {
    fraction.digits = builder.repeat(digit_range(builder, '0', '9'), 1, num_digits);
    return fraction;
  }
  std::map<std::pair<bool, bool>, ByteSet> first_digits;  // by the bounds that still count
  for (char digit = low ? low->digit() : '0'; digit <= (high ? high->digit() : '9'); ++digit) {
    first_digits[{low && digit == low->digit(), high && digit == high->digit()}].set(
        static_cast<size_t>(digit));
  }
  std::vector<ExprId> choices;
  for (const auto& [counts, digits] : first_digits) {
    const Fraction rest =
        fraction_range(builder, counts.first ? std::optional(low->rest()) : std::nullopt,
                       counts.second ? std::optional(high->rest()) : std::nullopt, num_digits - 1);
    choices.push_back(builder.sequence(
        {builder.bytes(digits), rest.may_be_empty ? builder.optional(rest.digits) : rest.digits}));
  }
  fraction.digits = builder.choice(choices);
  return fraction;
}

ExprId with_fraction(GrammarBuilder& builder, ExprId integer, const Fraction& fraction) {
  const ExprId some = builder.sequence({builder.text("."), fraction.digits});
  return builder.sequence({integer, fraction.may_be_empty ? builder.optional(some) : some});
}

// Numbers from `min`, which is not negative, on. A missing maximum is none.
ExprId natural_decimals(GrammarBuilder& builder, const DecimalBound& min,
                        std::optional<DecimalBound> max) {
  if (min.value.integer > kLargest) return builder.nothing();
  if (max && max->value.integer > kLargest) max.reset();
  const int64_t first = min.value.integer;
  std::optional<FractionBound> low = FractionBound{min.value.fraction, min.is_exclusive};
  if (low->digits.empty() && !low->is_exclusive) low.reset();
  std::optional<FractionBound> high;
  if (max) high = FractionBound{max->value.fraction, max->is_exclusive};
  const auto at = [&](int64_t integer, const auto& from, const auto& to) {
    return with_fraction(builder, builder.text(std::to_string(integer)),
                         fraction_range(builder, from, to, kIntegerDigitsMax));
  };
  const std::optional<FractionBound> none;
  if (max && max->value.integer < first) return builder.nothing();
  if (max && max->value.integer == first) return at(first, low, high);
  std::vector<ExprId> choices = {at(first, low, none)};
  const std::optional<int64_t> last =
      max ? std::optional<int64_t>(max->value.integer - 1) : std::nullopt;
  choices.push_back(with_fraction(builder, integer_range(builder, first + 1, last),
                                  fraction_range(builder, none, none, kIntegerDigitsMax)));
  if (max) choices.push_back(at(max->value.integer, none, high));
  return builder.choice(choices);
}

int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.integer != b.integer) return a.integer < b.integer ? -1 : 1;
  return a.fraction.compare(b.fraction);  // without zeros at their ends
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  return a.is_negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

DecimalBound mirrored(DecimalBound bound) {
  bound.value.is_negative = !bound.value.is_negative;
  return bound;
}

int64_t power_of_ten(size_t exponent) {
  int64_t power = 1;
  while (exponent-- > 0) power *= 10;
  return power;
}

}  // namespace

Decimal Decimal::of(std::string_view number) {
  Decimal decimal;
  decimal.is_negative = number.starts_with('-');
  if (decimal.is_negative) number.remove_prefix(1);
  const size_t end = std::min(number.find_first_of("eE"), number.size());
  const std::string_view mantissa = number.substr(0, end);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  if (point < mantissa.size()) digits += mantissa.substr(point + 1);
  int64_t exponent = 0;
  if (end < number.size()) {
    std::string_view text = number.substr(end + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    std::from_chars(text.data(), text.data() + text.size(), exponent);
  }
  // Places of the point far outside of the digits make no difference.
  const int64_t num_digits = std::ssize(digits);
  const int64_t num_before =
      std::clamp<int64_t>(static_cast<int64_t>(point) + exponent, -40, num_digits + 40);
  if (num_before > num_digits) digits.append(static_cast<size_t>(num_before - num_digits), '0');
  if (num_before < 0) digits.insert(0, static_cast<size_t>(-num_before), '0');
  const auto split = static_cast<size_t>(std::max<int64_t>(num_before, 0));
  for (const char digit : digits.substr(0, split)) {
    decimal.integer = std::min(decimal.integer * 10 + (digit - '0'), kIntegerMax);
    if (decimal.integer == kIntegerMax) break;
  }
  decimal.fraction = decimal.integer == kIntegerMax ? "" : digits.substr(split);
  const size_t last = decimal.fraction.find_last_not_of('0');
  decimal.fraction.resize(last == std::string::npos ? 0 : last + 1);
  decimal.is_cut = decimal.fraction.size() > kIntegerDigitsMax;
  if (decimal.is_cut) {
    decimal.fraction.resize(kIntegerDigitsMax);
    const size_t kept = decimal.fraction.find_last_not_of('0');
    decimal.fraction.resize(kept == std::string::npos ? 0 : kept + 1);
  }
  const bool is_zero = decimal.integer == 0 && decimal.fraction.empty() && !decimal.is_cut;
  decimal.is_negative = decimal.is_negative && !is_zero;
  return decimal;
}

bool is_tighter(const DecimalBound& a, const DecimalBound& b, bool is_upper) {
  const int order = compare(a.value, b.value);
  if (order == 0) return a.is_exclusive;
  return is_upper ? order < 0 : order > 0;
}

int64_t integer_within(const DecimalBound& bound, bool is_upper) {
  const Decimal& value = bound.value;
  const int64_t integer = value.is_negative ? -value.integer : value.integer;
  const int64_t inwards = is_upper ? -1 : 1;
  if (value.fraction.empty()) return bound.is_exclusive ? integer + inwards : integer;
  // The integer part is nearer to 0 than the value.
  return value.is_negative == is_upper ? integer + inwards : integer;
}

ExprId integer_range(GrammarBuilder& builder, std::optional<int64_t> min,
                     std::optional<int64_t> max) {
  const int64_t first = std::max(min.value_or(-kLargest), -kLargest);
  const int64_t last = std::min(max.value_or(kLargest), kLargest);
  std::vector<ExprId> choices;
  if (first > last) return builder.nothing();
  if (last >= 0) append_natural_range(builder, std::max<int64_t>(first, 0), last, choices);
  if (first < 0) {
    std::vector<ExprId> negative;
    append_natural_range(builder, last < 0 ? -last : 1, -first, negative);
    choices.push_back(builder.sequence({builder.text("-"), builder.choice(negative)}));
  }
  return builder.choice(choices);
}

ExprId decimal_range(GrammarBuilder& builder, const std::optional<DecimalBound>& min,
                     const std::optional<DecimalBound>& max) {
  std::vector<ExprId> choices;
  // Splits into a range from 0 up and the mirrored one below 0.
  if (!max || !max->value.is_negative) {
    const bool is_from_zero = !min || min->value.is_negative;
    choices.push_back(natural_decimals(builder, is_from_zero ? DecimalBound{} : *min, max));
  }
  if (!min || min->value.is_negative) {
    DecimalBound first = {.value = {}, .is_exclusive = true};
    if (max && max->value.is_negative) first = mirrored(*max);
    const std::optional<DecimalBound> last = min ? std::optional(mirrored(*min)) : std::nullopt;
    choices.push_back(
        builder.sequence({builder.text("-"), natural_decimals(builder, first, last)}));
  }
  return builder.choice(choices);
}

std::optional<ExprId> multiples(GrammarBuilder& builder, const Decimal& divisor) {
  const size_t num_behind = divisor.fraction.size();
  if (divisor.integer > kDivisorMax * kDivisorMax || num_behind > 6) return std::nullopt;
  int64_t unit = divisor.integer * power_of_ten(num_behind);
  for (size_t i = 0; i < num_behind; ++i) {
    unit += (divisor.fraction[i] - '0') * power_of_ten(num_behind - 1 - i);
  }
  // Multiples of 4000 are multiples of 4 and three zeros.
  std::string zeros;
  while (num_behind == 0 && unit % 10 == 0) {
    unit /= 10;
    zeros += '0';
  }
  if (unit > kDivisorMax) return std::nullopt;
  // A rule for the remainder of the digits so far, and how many of them stand behind the point.
  std::vector<std::vector<ExprId>> rules(num_behind + 2);
  for (auto& row : rules) {
    for (int64_t i = 0; i < unit; ++i) row.push_back(builder.declare_rule());
  }
  for (size_t phase = 0; phase < rules.size(); ++phase) {  // 0: before the point
    const size_t num_missing = phase == 0 ? num_behind : num_behind + 1 - phase;
    for (int64_t rest = 0; rest < unit; ++rest) {
      std::vector<ExprId> choices;
      const bool may_go_on = phase == 0 || num_missing > 0;
      for (int64_t digit = 0; may_go_on && digit < 10; ++digit) {
        const auto next = static_cast<size_t>((rest * 10 + digit) % unit);
        const auto byte = static_cast<uint8_t>('0' + digit);
        choices.push_back(builder.sequence(
            {builder.byte_range(byte, byte), rules[phase == 0 ? 0 : phase + 1][next]}));
      }
      if (phase == 0 && num_behind > 0) {
        choices.push_back(
            builder.sequence({builder.text("."), rules[1][static_cast<size_t>(rest)]}));
      }
      if (rest * power_of_ten(num_missing) % unit == 0) choices.push_back(builder.text(zeros));
      builder.define_rule(rules[phase][static_cast<size_t>(rest)], builder.choice(choices));
    }
  }
  const ExprId digits = builder.choice({builder.text("0"), rules[0][0]});
  return builder.sequence({builder.optional(builder.text("-")), digits});
}

}  // namespace halley
