// The methods of strings.
#include <algorithm>
#include <array>

#include "halley/checkpoint/chat_template/access.h"
#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/number_format.h"
#include "halley/checkpoint/chat_template/printf_format.h"
#include "halley/checkpoint/chat_template/replace_text.h"
#include "halley/checkpoint/chat_template/split_text.h"
#include "halley/checkpoint/chat_template/text.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

Value list_of(Runtime& runtime, const std::vector<std::string_view>& parts) {
  runtime.check_num_items(parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(runtime.string(part));
  return runtime.list(std::move(items));
}

template <Side kSide>
Value strip(Runtime& runtime, const Value& self, Call& call) {
  runtime.step_bytes(self.text().size() * 8);  // stripped text is work too
  if (!call.has(0)) return runtime.string(strip_spaces(self.text(), kSide));
  runtime.step_bytes(call.text(0).size() * 8);
  return runtime.string(strip_characters(self.text(), call.text(0), kSide));
}

template <bool kFromRight>
Value split(Runtime& runtime, const Value& self, Call& call) {
  const int64_t num_splits_max = call.integer(1, -1);
  // Counted before the parts are collected: each takes more memory than its text.
  runtime.step_bytes(self.text().size() * 8);
  if (!call.has(0)) {
    return list_of(runtime, split_at_spaces(self.text(), num_splits_max, kFromRight));
  }
  if (call.text(0).empty()) fail("empty separator");
  return list_of(runtime, split_at(self.text(), call.text(0), num_splits_max, kFromRight));
}

Value splitlines(Runtime& runtime, const Value& self, Call& call) {
  runtime.step_bytes(self.text().size() * 8);
  return list_of(runtime, split_lines(self.text(), call.truth(0, false)));
}

// The part of the string between the optional arguments start and end, and where it begins.
struct Part {
  std::string_view text;
  size_t first = 0;  // in code points
};

Part part_of(Runtime& runtime, const Value& self, const Call& call) {
  const std::string_view text = self.text();
  if (!call.has(1) && !call.has(2)) return {text, 0};
  const auto length = static_cast<int64_t>(self.string().num_code_points);
  const auto bounded = [&](int64_t bound) {
    if (bound < 0) bound = std::max<int64_t>(bound < -length ? 0 : bound + length, 0);
    return std::min(bound, length);
  };
  const auto first = static_cast<size_t>(bounded(call.integer(1, 0)));
  const auto last = static_cast<size_t>(bounded(call.integer(2, length)));
  runtime.step_bytes(text.size());
  if (last < first || call.integer(1, 0) > length) return {{}, SIZE_MAX};
  const size_t begin = byte_position(text, first);
  return {text.substr(begin, byte_position(text, last) - begin), first};
}

// Whether `self` starts or ends with the argument, or with one of a tuple.
template <bool kAtStart>
Value has_affix(Runtime& runtime, const Value& self, Call& call) {
  const Part part = part_of(runtime, self, call);
  const Value& argument = call.get(0);
  check_defined(argument);
  const std::vector<Value> affixes =
      argument.is(Kind::kTuple) ? argument.items() : std::vector<Value>{argument};
  for (const Value& affix : affixes) {
    if (!affix.is_string()) {
      fail(call.function(), " first arg must be str or a tuple of str, not ",
           type_name_of(affix.kind()));
    }
    runtime.step_bytes(affix.text().size());
    if (part.first == SIZE_MAX) continue;
    const bool found =
        kAtStart ? part.text.substr(0, affix.text().size()) == affix.text()
                 : part.text.size() >= affix.text().size() &&
                       part.text.substr(part.text.size() - affix.text().size()) == affix.text();
    if (found) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool kFromRight>
int64_t search(Runtime& runtime, const Value& self, const Call& call) {
  const Part part = part_of(runtime, self, call);
  const std::string& needle = call.text(0);
  runtime.step_bytes(self.text().size());
  if (part.first == SIZE_MAX) return -1;
  const size_t found =
      kFromRight ? find_last_text(part.text, needle) : find_text(part.text, needle);
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(part.first + count_code_points(part.text.substr(0, found)));
}

template <bool kFromRight>
Value find(Runtime& runtime, const Value& self, Call& call) {
  return Value::integer(search<kFromRight>(runtime, self, call));
}

template <bool kFromRight>
Value index_of(Runtime& runtime, const Value& self, Call& call) {
  const int64_t position = search<kFromRight>(runtime, self, call);
  if (position < 0) fail("substring not found");
  return Value::integer(position);
}

Value count(Runtime& runtime, const Value& self, Call& call) {
  const Part part = part_of(runtime, self, call);
  const std::string& needle = call.text(0);
  runtime.step_bytes(self.text().size());
  if (part.first == SIZE_MAX) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<int64_t>(count_code_points(part.text)) + 1);
  int64_t num_found = 0;
  for (size_t at = find_text(part.text, needle); at != std::string_view::npos;
       at = find_text(part.text, needle, at + needle.size())) {
    ++num_found;
  }
  return Value::integer(num_found);
}

Value replace(Runtime& runtime, const Value& self, Call& call) {
  return runtime.string(
      replace_text(runtime, self.text(), call.text(0), call.text(1), call.integer(2, -1)));
}

template <std::string (*kConvert)(std::string_view)>
Value convert(Runtime& runtime, const Value& self, Call& /*call*/) {
  runtime.step_bytes(self.text().size() * 8);
  return runtime.string(kConvert(self.text()));
}

Value join(Runtime& runtime, const Value& self, Call& call) {
  std::string out;
  bool is_first = true;
  for (const Value& item : items_of(runtime, call.get(0))) {
    if (!item.is_string()) {
      fail("sequence item: expected str instance, ", type_name_of(item.kind()), " found");
    }
    if (!is_first) out += self.text();
    is_first = false;
    out += item.text();
    runtime.check_string_size(out.size());
    runtime.step_bytes(self.text().size() + item.text().size());
  }
  return runtime.string(std::move(out));
}

Value format(Runtime& runtime, const Value& self, Call& call) {
  return brace_format(runtime, self.text(), call.arguments());
}

template <bool (*kAccepts)(uint32_t)>
Value all_characters(Runtime& runtime, const Value& self, Call& /*call*/) {
  const std::string& text = self.text();
  runtime.step_bytes(text.size() * 8);
  for (size_t at = 0; at < text.size();) {
    if (!kAccepts(next_code_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

Value isascii(Runtime& /*runtime*/, const Value& self, Call& /*call*/) {
  return Value::boolean(self.string().is_ascii());
}

Value isupper(Runtime& runtime, const Value& self, Call& /*call*/) {
  runtime.step_bytes(self.text().size() * 8);
  return Value::boolean(is_upper_text(self.text()));
}

Value islower(Runtime& runtime, const Value& self, Call& /*call*/) {
  runtime.step_bytes(self.text().size() * 8);
  return Value::boolean(is_lower_text(self.text()));
}

template <char kAlign>
Value justify(Runtime& runtime, const Value& self, Call& call) {
  const int64_t width = call.integer(0, 0);
  const std::string fill = call.has(1) ? call.text(1) : " ";
  if (count_code_points(fill) != 1) {
    fail("The fill character must be exactly one character long");
  }
  std::string text = pad(runtime, {self.text(), 0},
                         static_cast<size_t>(std::max<int64_t>(width, 0)), kAlign, fill);
  return runtime.string(std::move(text));
}

// If the padding is odd, str.center puts one more to the left where the width is odd too.
Value center(Runtime& runtime, const Value& self, Call& call) {
  const int64_t width = call.integer(0, 0);
  const auto length = static_cast<int64_t>(self.string().num_code_points);
  const std::string fill = call.has(1) ? call.text(1) : " ";
  if (count_code_points(fill) != 1) {
    fail("The fill character must be exactly one character long");
  }
  if (width <= length) return self;
  const int64_t missing = width - length;
  const int64_t left = missing / 2 + (missing & width & 1);
  std::string text = pad(runtime, {self.text(), 0}, static_cast<size_t>(length + left), '>', fill);
  return runtime.string(pad(runtime, {std::move(text), 0}, static_cast<size_t>(width), '<', fill));
}

Value zfill(Runtime& runtime, const Value& self, Call& call) {
  const std::string& text = self.text();
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const auto width = static_cast<size_t>(std::max<int64_t>(call.integer(0, 0), 0));
  return runtime.string(pad(runtime, {text, has_sign ? size_t{1} : size_t{0}}, width, '=', "0"));
}

Value removeprefix(Runtime& runtime, const Value& self, Call& call) {
  const std::string_view text = self.text();
  const std::string& prefix = call.text(0);
  runtime.step_bytes(prefix.size());
  return text.substr(0, prefix.size()) == prefix ? runtime.string(text.substr(prefix.size()))
                                                 : self;
}

Value removesuffix(Runtime& runtime, const Value& self, Call& call) {
  const std::string_view text = self.text();
  const std::string& suffix = call.text(0);
  runtime.step_bytes(suffix.size());
  if (suffix.empty() || text.size() < suffix.size()) return self;
  const std::string_view rest = text.substr(0, text.size() - suffix.size());
  return text.substr(rest.size()) == suffix ? runtime.string(rest) : self;
}

template <bool kFromRight>
Value partition(Runtime& runtime, const Value& self, Call& call) {
  const std::string_view text = self.text();
  const std::string& separator = call.text(0);
  if (separator.empty()) fail("empty separator");
  runtime.step_bytes(text.size());
  const size_t found = kFromRight ? find_last_text(text, separator) : find_text(text, separator);
  std::vector<Value> parts;
  if (found == std::string_view::npos) {
    parts = {runtime.string(""), runtime.string("")};
    parts.insert(kFromRight ? parts.end() : parts.begin(), self);
  } else {
    parts = {runtime.string(text.substr(0, found)), runtime.string(separator),
             runtime.string(text.substr(found + separator.size()))};
  }
  return runtime.tuple(std::move(parts));
}

constexpr Builtin kStringMethods[] = {
    {"strip", "chars", 0, strip<Side::kBoth>},
    {"lstrip", "chars", 0, strip<Side::kLeft>},
    {"rstrip", "chars", 0, strip<Side::kRight>},
    {"split", "sep maxsplit", 0, split<false>},
    {"rsplit", "sep maxsplit", 0, split<true>},
    {"splitlines", "keepends", 0, splitlines},
    {"startswith", "prefix start end", 1, has_affix<true>},
    {"endswith", "suffix start end", 1, has_affix<false>},
    {"find", "sub start end", 1, find<false>},
    {"rfind", "sub start end", 1, find<true>},
    {"index", "sub start end", 1, index_of<false>},
    {"rindex", "sub start end", 1, index_of<true>},
    {"count", "sub start end", 1, count},
    {"replace", "old new count", 2, replace},
    {"upper", "", 0, convert<to_upper>},
    {"lower", "", 0, convert<to_lower>},
    {"title", "", 0, convert<to_title>},
    {"capitalize", "", 0, convert<to_capitalized>},
    {"swapcase", "", 0, convert<to_swapped_case>},
    {"join", "iterable", 1, join},
    {"format", "*", 0, format},
    {"isspace", "", 0, all_characters<is_space>},
    {"isalpha", "", 0, all_characters<is_letter>},
    {"isdigit", "", 0, all_characters<is_decimal_digit>},
    {"isdecimal", "", 0, all_characters<is_decimal_digit>},
    {"isalnum", "", 0, all_characters<is_word>},
    {"isascii", "", 0, isascii},
    {"isupper", "", 0, isupper},
    {"islower", "", 0, islower},
    {"ljust", "width fillchar", 1, justify<'<'>},
    {"rjust", "width fillchar", 1, justify<'>'>},
    {"center", "width fillchar", 1, center},
    {"zfill", "width", 1, zfill},
    {"removeprefix", "prefix", 1, removeprefix},
    {"removesuffix", "suffix", 1, removesuffix},
    {"partition", "sep", 1, partition<false>},
    {"rpartition", "sep", 1, partition<true>},
};

}  // namespace

std::span<const Builtin> string_methods() { return kStringMethods; }

}  // namespace halley::jinja
