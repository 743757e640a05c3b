#include "halley/constraint/json_grammar.h"

#include <algorithm>
#include <utility>

#include "halley/base/check.h"
#include "halley/checkpoint/tokenizer/utf8.h"
#include "halley/constraint/char_set.h"
#include "halley/constraint/number_range.h"

namespace halley {
namespace {

constexpr int32_t kIndentMax = 20;

std::u32string code_points_of(std::string_view text) {
  std::u32string code_points;
  while (!text.empty()) {
    const Utf8Char next = first_char(text);
    code_points += static_cast<char32_t>(next.code);
    text.remove_prefix(next.num_bytes);
  }
  return code_points;
}

}  // namespace

ExprId JsonGrammar::space() {
  if (!space_) {
    const ExprId indent = builder_.bytes(ByteSet().set(' ').set('\t'));
    space_ = builder_.choice(
        {builder_.empty(), builder_.text(" "),
         builder_.sequence({builder_.text("\n"), builder_.repeat(indent, 0, kIndentMax)})});
  }
  return *space_;
}

ExprId JsonGrammar::any_char() {
  if (!char_) char_ = any_json_char(builder_);
  return *char_;
}

ExprId JsonGrammar::plain_text() {
  if (!plain_text_) {
    plain_text_ = builder_.repeat(utf8_char(builder_, plain_json_chars()), 0, kUnbounded);
  }
  return *plain_text_;
}

ExprId JsonGrammar::quoted(ExprId content) {
  return builder_.sequence({builder_.text("\""), content, builder_.text("\"")});
}

ExprId JsonGrammar::string(int32_t num_chars_min, int32_t num_chars_max) {
  return quoted(builder_.repeat(any_char(), num_chars_min, num_chars_max));
}

ExprId JsonGrammar::number() {
  if (number_) return *number_;
  const ExprId digit = builder_.byte_range('0', '9');
  const ExprId integer = builder_.choice(
      {builder_.text("0"), builder_.sequence({builder_.byte_range('1', '9'),
                                              builder_.repeat(digit, 0, kIntegerDigitsMax - 1)})});
  const ExprId fraction =
      builder_.sequence({builder_.text("."), builder_.repeat(digit, 1, kIntegerDigitsMax)});
  const ExprId exponent =
      builder_.sequence({builder_.bytes(ByteSet().set('e').set('E')),
                         builder_.optional(builder_.bytes(ByteSet().set('+').set('-'))),
                         builder_.repeat(digit, 1, 2)});
  number_ = builder_.sequence({builder_.optional(builder_.text("-")), integer,
                               builder_.optional(fraction), builder_.optional(exponent)});
  return *number_;
}

ExprId JsonGrammar::member(ExprId name, ExprId value) {
  return builder_.sequence(
      {name, builder_.text(":"), builder_.optional(builder_.text(" ")), value});
}

ExprId JsonGrammar::literal_object(const OrderedJson& value) {
  std::vector<JsonMember> members;
  for (const auto& [name, item] : value.items()) members.push_back({name, literal(item), true});
  return object(members, std::nullopt);
}

ExprId JsonGrammar::literal(const OrderedJson& value) {
  if (value.is_object()) return literal_object(value);
  if (!value.is_array()) return builder_.text(value.dump());
  JsonArrayShape shape;
  for (const OrderedJson& item : value) shape.first_items.push_back(literal(item));
  shape.num_min = static_cast<int32_t>(shape.first_items.size());
  shape.num_max = shape.num_min;
  return array(shape);
}

ExprId JsonGrammar::array(const JsonArrayShape& shape) {
  const auto num_first = static_cast<int32_t>(shape.first_items.size());
  const ExprId close = builder_.sequence({space(), builder_.text("]")});
  const ExprId comma = builder_.sequence({builder_.text(","), space()});
  // The text after `count` items: the end, or a comma and the next item.
  ExprId tail = shape.num_min <= num_first ? close : builder_.nothing();
  if (shape.items && shape.num_max > num_first) {
    const int32_t max =
        shape.num_max == kUnbounded ? kUnbounded : shape.num_max - std::max(num_first, 1);
    const int32_t min = std::max(shape.num_min - std::max(num_first, 1), 0);
    tail = builder_.sequence(
        {builder_.repeat(builder_.sequence({comma, *shape.items}), min, max), close});
    if (num_first == 0) tail = builder_.sequence({*shape.items, tail});
  } else if (num_first == 0) {
    tail = builder_.nothing();
  }
  for (int32_t count = num_first; count-- > 0;) {
    const ExprId item = builder_.sequence({shape.first_items[static_cast<size_t>(count)], tail});
    if (count == 0) {
      tail = shape.num_max > 0 ? item : builder_.nothing();
      break;
    }
    std::vector<ExprId> choices;
    if (count < shape.num_max) choices.push_back(builder_.sequence({comma, item}));
    if (count >= shape.num_min) choices.push_back(close);
    tail = builder_.choice(choices);
  }
  const ExprId some = builder_.sequence({space(), tail});
  const ExprId behind_bracket =
      shape.num_min == 0 ? builder_.choice({builder_.text("]"), some}) : some;
  return builder_.sequence({builder_.text("["), behind_bracket});
}

ExprId JsonGrammar::plain_char_but(const std::u32string& taken) {
  const auto [found, is_new] = plain_chars_but_.try_emplace(taken, 0);
  if (is_new) {
    CharSet chars = plain_json_chars();
    for (const char32_t code : taken) {
      chars = chars.without(CharSet::of(static_cast<uint32_t>(code)));
    }
    found->second = utf8_char(builder_, chars);
  }
  return found->second;
}

ExprId JsonGrammar::other_name_from(std::span<const std::u32string> names, size_t num_shared) {
  // All names share their first `num_shared` characters, which were written already.
  std::u32string taken;
  std::vector<ExprId> choices;
  bool is_name = false;
  for (size_t i = 0; i < names.size();) {
    if (names[i].size() == num_shared) {
      is_name = true;
      ++i;
      continue;
    }
    const char32_t next = names[i][num_shared];
    size_t end = i;
    while (end < names.size() && names[end][num_shared] == next) ++end;
    const CharSet chars = CharSet::of(static_cast<uint32_t>(next));
    taken += next;
    choices.push_back(builder_.sequence(
        {utf8_char(builder_, chars), other_name_from(names.subspan(i, end - i), num_shared + 1)}));
    i = end;
  }
  choices.push_back(builder_.sequence({plain_char_but(taken), plain_text()}));
  if (!is_name) choices.push_back(builder_.empty());
  return builder_.choice(choices);
}

ExprId JsonGrammar::other_name(std::span<const JsonMember> members) {
  if (members.empty()) return string(0, kUnbounded);
  const CharSet plain = plain_json_chars();
  std::vector<std::u32string> names;
  for (const JsonMember& member : members) {
    HALLEY_CHECK(member.name.size() <= kNameBytesMax);
    std::u32string code_points = code_points_of(member.name);
    const bool is_plain = std::all_of(code_points.begin(), code_points.end(), [&](char32_t code) {
      return plain.has(static_cast<uint32_t>(code));
    });
    if (is_plain) names.push_back(std::move(code_points));  // other names need escapes
  }
  std::sort(names.begin(), names.end());
  return quoted(names.empty() ? plain_text() : other_name_from(names, 0));
}

ExprId JsonGrammar::object(std::span<const JsonMember> members, std::optional<ExprId> additional) {
  const ExprId close = builder_.sequence({space(), builder_.text("}")});
  const ExprId comma = builder_.sequence({builder_.text(","), space()});
  // `some`: at least one more member and the rest; `rest`: the text after a member.
  ExprId some = additional ? builder_.declare_rule() : builder_.nothing();
  ExprId rest = close;
  if (additional) {
    rest = builder_.choice({builder_.sequence({comma, some}), close});
    builder_.define_rule(some, builder_.sequence({member(other_name(members), *additional), rest}));
  }
  bool may_end = true;
  for (size_t i = members.size(); i-- > 0;) {
    const JsonMember& m = members[i];
    const ExprId name = builder_.text(OrderedJson(m.name).dump());
    const ExprId this_one = builder_.sequence({member(name, m.value), rest});
    some = m.is_required ? this_one : builder_.choice({this_one, some});
    may_end = may_end && !m.is_required;
    rest = builder_.sequence({comma, some});
    if (may_end) rest = builder_.choice({rest, close});
  }
  const ExprId behind_brace = builder_.sequence({space(), some});
  return builder_.sequence(
      {builder_.text("{"),
       may_end ? builder_.choice({builder_.text("}"), behind_brace}) : behind_brace});
}

ExprId JsonGrammar::map(ExprId name, ExprId value, int32_t num_min, int32_t num_max) {
  const ExprId close = builder_.sequence({space(), builder_.text("}")});
  const ExprId one = member(name, value);
  const ExprId more = builder_.sequence({builder_.text(","), space(), one});
  const int32_t more_max = num_max == kUnbounded ? kUnbounded : std::max(num_max - 1, 0);
  const ExprId some = builder_.sequence(
      {space(), one, builder_.repeat(more, std::max(num_min - 1, 0), more_max), close});
  const ExprId none = builder_.text("}");
  const ExprId behind_brace = num_max == 0   ? none
                              : num_min == 0 ? builder_.choice({none, some})
                                             : some;
  return builder_.sequence({builder_.text("{"), behind_brace});
}

ExprId JsonGrammar::any_object() {
  if (!any_object_) {
    any_object_ = builder_.declare_rule();
    builder_.define_rule(*any_object_, object({}, any_value()));
  }
  return *any_object_;
}

ExprId JsonGrammar::any_value() {
  if (!any_value_) {
    any_value_ = builder_.declare_rule();
    JsonArrayShape any_array;
    any_array.items = *any_value_;
    builder_.define_rule(*any_value_,
                         builder_.choice({any_object(), array(any_array), string(0, kUnbounded),
                                          number(), boolean(), null()}));
  }
  return *any_value_;
}

}  // namespace halley
