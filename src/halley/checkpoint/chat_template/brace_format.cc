#include <optional>

#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/number_format.h"
#include "halley/checkpoint/chat_template/number_text.h"
#include "halley/checkpoint/chat_template/operators.h"
#include "halley/checkpoint/chat_template/printf_format.h"
#include "halley/checkpoint/chat_template/text.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Specification {
  std::string fill = " ";
  char align = 0;
  size_t width = 0;
  char type = 0;
  NumberFormat number;
};

size_t read_digits(Runtime& runtime, std::string_view text, size_t& at) {
  size_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + static_cast<size_t>(text[at] - '0');
    runtime.check_string_size(value);
  }
  return value;
}

Specification read_specification(Runtime& runtime, std::string_view text) {
  Specification result;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  size_t at = 0;
  const auto char_at = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  size_t behind = 0;
  if (!text.empty()) next_code_point(text, behind);
  if (behind > 0 && is_align(char_at(behind))) {
    result.fill = std::string(text.substr(0, behind));
    result.align = text[behind];
    at = behind + 1;
  } else if (is_align(char_at(0))) {
    result.align = text[at++];
  }
  if (char_at(at) == '+' || char_at(at) == '-' || char_at(at) == ' ') {
    result.number.sign = text[at++];
  }
  if (char_at(at) == '#') {
    result.number.is_alternate = true;
    ++at;
  }
  if (char_at(at) == '0') {
    if (result.align == 0) {
      result.fill = "0";
      result.align = '=';
    }
    ++at;
  }
  result.width = read_digits(runtime, text, at);
  if (char_at(at) == ',') {
    result.number.has_commas = true;
    ++at;
  }
  if (char_at(at) == '.') {
    const size_t begin = ++at;
    result.number.precision = static_cast<int>(read_digits(runtime, text, at));
    if (at == begin) fail("Format specifier missing precision");
  }
  if (at < text.size()) result.type = text[at++];
  if (at < text.size()) fail("Invalid format specifier ", quote(text));
  return result;
}

std::string format_text(Runtime& runtime, const Value& value, const Specification& specification) {
  if (specification.type != 0 && specification.type != 's') {
    fail("Unknown format code ", quote(std::string(1, specification.type)), " for object of type '",
         type_name_of(value.kind()), "'");
  }
  if (specification.align == '=') {
    fail("'=' alignment not allowed in string format specifier");
  }
  NumberText text{to_text(runtime, value), 0};
  if (specification.number.precision >= 0) {
    text.text.resize(byte_position(text.text, static_cast<size_t>(specification.number.precision)));
  }
  return pad(runtime, text, specification.width,
             specification.align == 0 ? '<' : specification.align, specification.fill);
}

NumberText number_text_of(const Value& value, const Specification& specification) {
  NumberFormat format = specification.number;
  const char type = specification.type;
  const std::string_view float_types = "eEfFgG%";
  const bool wants_float = type != 0 && float_types.find(type) != std::string_view::npos;
  if (value.is_integral() && !wants_float) {
    if (type != 0 && std::string_view("dxXob").find(type) == std::string_view::npos) {
      fail("Unknown format code ", quote(std::string(1, type)), " for object of type 'int'");
    }
    if (format.precision >= 0) fail("Precision not allowed in integer format specifier");
    format.type = type == 0 ? 'd' : type;
    return format_integer(value.as_int(), format);
  }
  if (!wants_float && type != 0) {
    fail("Unknown format code ", quote(std::string(1, type)), " for object of type 'float'");
  }
  if (type == 0 && format.precision < 0) {
    NumberText number{float_text(value.as_double()), 0};
    if (number.text[0] == '-') {
      number.sign_size = 1;
    } else if (format.sign != '-') {
      number.text.insert(0, 1, format.sign);
      number.sign_size = 1;
    }
    return number;
  }
  format.type = type == 0 ? 'g' : type;
  return format_float(value.as_double(), format);
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, std::string_view format, const Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  Value run();

 private:
  void read_field();
  Value find_value(std::string_view name);
  void append(std::string_view text) {
    out_ += text;
    runtime_.check_string_size(out_.size());
  }

  Runtime& runtime_;
  std::string_view format_;
  const Arguments& arguments_;
  size_t at_ = 0;
  size_t num_automatic_ = 0;
  std::string out_;
};

Value BraceFormatter::find_value(std::string_view name) {
  if (name.find_first_of(".[") != std::string_view::npos) {
    fail("attributes and items in a format field are not supported: ", quote(name));
  }
  std::optional<int64_t> index;
  if (name.empty()) {
    index = static_cast<int64_t>(num_automatic_++);
  } else if (name.find_first_not_of("0123456789") == std::string_view::npos) {
    index = parse_integer(name, 10).value;
  }
  if (index) {
    if (static_cast<size_t>(*index) >= arguments_.positional.size()) {
      fail("Replacement index ", *index, " out of range for positional args tuple");
    }
    return arguments_.positional[static_cast<size_t>(*index)];
  }
  for (const auto& [key, value] : arguments_.keyword) {
    if (key == name) return value;
  }
  fail("the format's key ", quote(name), " is not there");
}

void BraceFormatter::read_field() {
  runtime_.step();
  const size_t end = format_.find('}', at_);
  if (end == std::string_view::npos) fail("expected '}' before end of string");
  std::string_view field = format_.substr(at_, end - at_);
  at_ = end + 1;
  if (field.find('{') != std::string_view::npos) {
    fail("a field inside a format field is not supported");
  }
  const size_t colon = std::min(field.find(':'), field.size());
  const std::string_view specification =
      colon < field.size() ? field.substr(colon + 1) : std::string_view();
  field = field.substr(0, colon);
  const size_t mark = std::min(field.find('!'), field.size());
  Value value = find_value(field.substr(0, mark));
  if (mark < field.size()) {
    const std::string_view conversion = field.substr(mark + 1);
    if (conversion != "r" && conversion != "s") {
      fail("unknown conversion ", quote(conversion), " in a format field");
    }
    value =
        runtime_.string(conversion == "r" ? to_repr(runtime_, value) : to_text(runtime_, value));
  }
  append(format_value(runtime_, value, specification));
}

Value BraceFormatter::run() {
  while (at_ < format_.size()) {
    const size_t brace = std::min(format_.find_first_of("{}", at_), format_.size());
    append(format_.substr(at_, brace - at_));
    at_ = brace + 1;
    if (brace == format_.size()) break;
    const bool is_double = at_ < format_.size() && format_[at_] == format_[brace];
    if (is_double) {
      append(format_.substr(brace, 1));
      ++at_;
    } else if (format_[brace] == '}') {
      fail("Single '}' encountered in format string");
    } else {
      read_field();
    }
  }
  return runtime_.string(std::move(out_));
}

}  // namespace

std::string format_value(Runtime& runtime, const Value& value, std::string_view text) {
  const Specification specification = read_specification(runtime, text);
  if (text.empty()) return to_text(runtime, value);
  if (value.is_number()) {
    return pad(runtime, number_text_of(value, specification), specification.width,
               specification.align == 0 ? '>' : specification.align, specification.fill);
  }
  check_defined(value);
  if (!value.is_string()) {
    fail("unsupported format string passed to ", type_name_of(value.kind()), ".__format__");
  }
  return format_text(runtime, value, specification);
}

Value brace_format(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  return BraceFormatter(runtime, format, arguments).run();
}

}  // namespace halley::jinja
