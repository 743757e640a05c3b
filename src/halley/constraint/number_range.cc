#include "halley/constraint/number_range.h"

#include <algorithm>
#include <string>
#include <string_view>
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

}  // namespace

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

}  // namespace halley
