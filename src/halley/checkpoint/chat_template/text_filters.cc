// Filters that make text.
#include <algorithm>

#include "halley/checkpoint/chat_template/builtin_tables.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/printf_format.h"
#include "halley/checkpoint/chat_template/replace_text.h"
#include "halley/checkpoint/chat_template/text.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

Value text_value(Runtime& runtime, const Value& self) {
  return self.is_string() ? self : runtime.string(to_text(runtime, self));
}

template <std::string (*kConvert)(std::string_view)>
Value convert(Runtime& runtime, const Value& self, Call& /*call*/) {
  const Value text = text_value(runtime, self);
  runtime.step_bytes(text.text().size() * 8);
  return runtime.string(kConvert(text.text()));
}

Value center(Runtime& runtime, const Value& self, Call& call) {
  Arguments arguments;
  arguments.positional.push_back(Value::integer(call.integer(0, 80)));
  return call_builtin(runtime, *find_method(Kind::kString, "center"), text_value(runtime, self),
                      std::move(arguments));
}

// Words start behind spaces and opening brackets, unlike in str.title.
Value title(Runtime& runtime, const Value& self, Call& /*call*/) {
  const Value value = text_value(runtime, self);
  const std::string_view text = value.text();
  runtime.step_bytes(text.size() * 8);
  std::string out;
  const auto is_divider = [](uint32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t first = next_code_point(text, at);
    if (is_divider(first)) {
      append_code_point(out, first);
      continue;
    }
    out += to_upper(text.substr(begin, at - begin));
    const size_t rest = at;
    while (at < text.size()) {
      size_t behind = at;
      if (is_divider(next_code_point(text, behind))) break;
      at = behind;
    }
    out += to_lower(text.substr(rest, at - rest));
  }
  return runtime.string(std::move(out));
}

Value trim(Runtime& runtime, const Value& self, Call& call) {
  const Value text = text_value(runtime, self);
  runtime.step_bytes(text.text().size() * 8);  // stripped text is work too
  if (!call.has(0)) return runtime.string(strip_spaces(text.text()));
  runtime.step_bytes(call.text(0).size() * 8);
  return runtime.string(strip_characters(text.text(), call.text(0), Side::kBoth));
}

Value replace(Runtime& runtime, const Value& self, Call& call) {
  return runtime.string(replace_text(runtime, to_text(runtime, self), to_text(runtime, call.get(0)),
                                     to_text(runtime, call.get(1)), call.integer(2, -1)));
}

Value string(Runtime& runtime, const Value& self, Call& /*call*/) {
  return text_value(runtime, self);
}

Value escape(Runtime& runtime, const Value& self, Call& /*call*/) {
  std::string out;
  for (const char c : to_text(runtime, self)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
    runtime.check_string_size(out.size());
  }
  return runtime.string(std::move(out));
}

Value format(Runtime& runtime, const Value& self, Call& call) {
  const Value text = text_value(runtime, self);
  Arguments& arguments = call.arguments();
  if (!arguments.keyword.empty() && !arguments.positional.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.keyword.empty()) {
    const Value values = runtime.tuple(std::move(arguments.positional));
    return printf_format(runtime, text.text(), values);
  }
  Members members;
  for (auto& [name, value] : arguments.keyword) {
    members.emplace_back(runtime.string(name), std::move(value));
  }
  return printf_format(runtime, text.text(), runtime.dict(std::move(members)));
}

Value indent(Runtime& runtime, const Value& self, Call& call) {
  check_defined(self);
  if (!self.is_string()) fail("indent() expects a string, got ", type_name_of(self.kind()));
  std::string indention;
  if (call.was_given(0) && call.get(0).is_string()) {
    indention = call.text(0);
  } else {
    const auto width = static_cast<size_t>(std::max<int64_t>(call.integer(0, 4), 0));
    runtime.check_string_size(width);
    indention.assign(width, ' ');
  }
  const bool indents_blank = call.truth(2, false);
  const std::string text = self.text() + "\n";  // so that an empty last line counts
  std::string out = call.truth(1, false) ? indention : std::string();
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!is_first) out += '\n';
    if (!is_first && (indents_blank || !line.empty())) out += indention;
    is_first = false;
    out += line;
    runtime.step_bytes(line.size() + indention.size());
    runtime.check_string_size(out.size());
  }
  return runtime.string(std::move(out));
}

Value truncate(Runtime& runtime, const Value& self, Call& call) {
  check_defined(self);
  if (!self.is_string()) fail("truncate() expects a string, got ", type_name_of(self.kind()));
  const std::string end = call.has(2) ? call.text(2) : "...";
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  const int64_t length = call.integer(0, 255);
  const int64_t leeway = call.integer(3, 5);
  if (length < end_length) fail("expected length >= ", end_length, ", got ", length);
  if (leeway < 0) fail("expected leeway >= 0, got ", leeway);
  const auto own_length = static_cast<int64_t>(self.string().num_code_points);
  if (own_length - leeway <= length) return self;
  const size_t cut = byte_position(self.text(), static_cast<size_t>(length - end_length));
  std::string_view kept = std::string_view(self.text()).substr(0, cut);
  if (!call.truth(1, false)) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  return runtime.string(std::string(kept) + end);
}

Value wordcount(Runtime& runtime, const Value& self, Call& /*call*/) {
  const std::string text = to_text(runtime, self);
  runtime.step_bytes(text.size() * 8);
  int64_t count = 0;
  bool is_inside = false;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    const bool is_part = c == '_' || is_word(c);
    count += is_part && !is_inside ? 1 : 0;
    is_inside = is_part;
  }
  return Value::integer(count);
}

std::string quote_url(Runtime& runtime, std::string_view text, bool is_query) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-' || c == '~';
    if (is_plain || (c == '/' && !is_query)) {
      out += c;
    } else if (c == ' ' && is_query) {
      out += '+';
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
    runtime.check_string_size(out.size());
  }
  runtime.step_bytes(text.size());
  return out;
}

Value urlencode(Runtime& runtime, const Value& self, Call& /*call*/) {
  const bool has_pairs = self.is_dict() || self.is_sequence() || self.is(Kind::kView) ||
                         self.is(Kind::kGenerator) || self.is_undefined();
  if (!has_pairs) return runtime.string(quote_url(runtime, to_text(runtime, self), false));
  std::vector<Value> pairs;
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict().members) pairs.push_back(runtime.pair(key, value));
  } else {
    pairs = items_of(runtime, self);
  }
  std::string out;
  for (const Value& item : pairs) {
    const std::vector<Value> pair = items_of(runtime, item);
    if (pair.size() != 2) fail("urlencode() expects pairs of a name and a value");
    if (!out.empty()) out += '&';
    out += quote_url(runtime, to_text(runtime, pair[0]), true) + "=" +
           quote_url(runtime, to_text(runtime, pair[1]), true);
    runtime.check_string_size(out.size());
  }
  return runtime.string(std::move(out));
}

Value tojson(Runtime& runtime, const Value& self, Call& call) {
  JsonStyle style;
  style.is_ascii = call.truth(0, false);
  if (call.has(1)) {
    style.has_indent = true;
    style.item_separator = ",";
    if (call.get(1).is_string()) {
      style.indent = call.text(1);
    } else {
      const auto width = static_cast<size_t>(std::max<int64_t>(call.integer(1, 0), 0));
      runtime.check_string_size(width);
      style.indent.assign(width, ' ');
    }
  }
  if (call.has(2)) {
    const std::vector<Value> separators = items_of(runtime, call.get(2));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("tojson() expects two strings as separators");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  style.sorts_keys = call.truth(3, false);
  return runtime.string(to_json(runtime, self, style));
}

constexpr Builtin kTextFilters[] = {
    {"upper", "", 0, convert<to_upper>},
    {"lower", "", 0, convert<to_lower>},
    {"capitalize", "", 0, convert<to_capitalized>},
    {"title", "", 0, title},
    {"center", "width", 0, center},
    {"trim", "chars", 0, trim},
    {"replace", "old new count", 2, replace},
    {"string", "", 0, string},
    {"safe", "", 0, string},
    {"escape", "", 0, escape},
    {"e", "", 0, escape},
    {"forceescape", "", 0, escape},
    {"format", "*", 0, format},
    {"indent", "width first blank", 0, indent},
    {"truncate", "length killwords end leeway", 0, truncate},
    {"wordcount", "", 0, wordcount},
    {"urlencode", "", 0, urlencode},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
};

}  // namespace

std::span<const Builtin> text_filters() { return kTextFilters; }

}  // namespace halley::jinja
