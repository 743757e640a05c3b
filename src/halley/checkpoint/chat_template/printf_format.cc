#include "halley/checkpoint/chat_template/printf_format.h"

#include <cmath>

#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/number_format.h"
#include "halley/checkpoint/chat_template/operators.h"
#include "halley/checkpoint/chat_template/text.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

// One % conversion as written.
struct Conversion {
  NumberFormat number;
  bool is_left = false;
  bool has_zeros = false;
  size_t width = 0;
  std::string key;
  bool has_key = false;
};

class PrintfFormatter {
 public:
  PrintfFormatter(Runtime& runtime, std::string_view format, const Value& values)
      : runtime_(runtime), format_(format), values_(values) {}

  Value run();

 private:
  char peek() const { return at_ < format_.size() ? format_[at_] : '\0'; }
  Conversion read_conversion();
  size_t read_number();
  Value next_value(const Conversion& conversion);
  std::string convert(const Conversion& conversion, const Value& value);
  std::string convert_character(const Value& value);
  void append(std::string_view text) {
    out_ += text;
    runtime_.check_string_size(out_.size());
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& values_;
  size_t at_ = 0;
  size_t num_used_ = 0;
  std::string out_;
};

size_t PrintfFormatter::read_number() {
  if (peek() == '*') fail("'*' in a format string is not supported");
  size_t value = 0;
  while (peek() >= '0' && peek() <= '9') {
    value = value * 10 + static_cast<size_t>(format_[at_++] - '0');
    runtime_.check_string_size(value);
  }
  return value;
}

Conversion PrintfFormatter::read_conversion() {
  Conversion conversion;
  if (peek() == '(') {
    const size_t end = format_.find(')', at_);
    if (end == std::string_view::npos) fail("incomplete format key");
    conversion.key = std::string(format_.substr(at_ + 1, end - at_ - 1));
    conversion.has_key = true;
    at_ = end + 1;
  }
  for (;; ++at_) {
    if (peek() == '-') {
      conversion.is_left = true;
    } else if (peek() == '+' || (peek() == ' ' && conversion.number.sign != '+')) {
      conversion.number.sign = peek();
    } else if (peek() == '0') {
      conversion.has_zeros = true;
    } else if (peek() == '#') {
      conversion.number.is_alternate = true;
    } else if (peek() != ' ') {
      break;
    }
  }
  conversion.width = read_number();
  if (peek() == '.') {
    ++at_;
    conversion.number.precision = static_cast<int>(read_number());
  }
  while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
  if (at_ >= format_.size()) fail("incomplete format");
  conversion.number.type = format_[at_++];
  return conversion;
}

Value PrintfFormatter::next_value(const Conversion& conversion) {
  if (conversion.has_key) {
    if (!values_.is_dict()) fail("format requires a mapping");
    const Value* value = values_.dict().find(conversion.key);
    if (value == nullptr) fail("the format's key ", quote(conversion.key), " is not there");
    return *value;
  }
  const size_t index = num_used_++;
  if (values_.is(Kind::kTuple)) {
    if (index < values_.items().size()) return values_.items()[index];
  } else if (index == 0) {
    return values_;
  }
  fail("not enough arguments for format string");
}

std::string PrintfFormatter::convert_character(const Value& value) {
  if (value.is_string() && value.string().num_code_points == 1) return value.text();
  const bool is_character = value.is_integral() && value.as_int() >= 0 &&
                            value.as_int() <= 0x10FFFF &&
                            (value.as_int() < 0xD800 || value.as_int() > 0xDFFF);
  if (!is_character) fail("%c requires int or char");
  std::string text;
  append_code_point(text, static_cast<uint32_t>(value.as_int()));
  return text;
}

std::string PrintfFormatter::convert(const Conversion& conversion, const Value& value) {
  NumberFormat format = conversion.number;
  NumberText number;
  bool is_number = true;
  switch (format.type) {
    case 's':
    case 'r':
    case 'a': {
      is_number = false;
      number.text = format.type == 's' ? to_text(runtime_, value) : to_repr(runtime_, value);
      if (format.precision >= 0) {
        number.text.resize(byte_position(number.text, static_cast<size_t>(format.precision)));
      }
      break;
    }
    case 'c':
      is_number = false;
      number.text = convert_character(value);
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      check_defined(value);
      const bool takes_float = format.type == 'd' || format.type == 'i' || format.type == 'u';
      if (!value.is_integral() && !(takes_float && value.is(Kind::kFloat))) {
        fail("%", format.type, " format: a number is required, not ", type_name_of(value.kind()));
      }
      if (takes_float) format.type = 'd';
      number = format_integer(value.is_integral() ? value.as_int() : truncated(value.as_double()),
                              format);
      break;
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      check_defined(value);
      if (!value.is_number()) fail("must be real number, not ", type_name_of(value.kind()));
      number = format_float(value.as_double(), format);
      break;
    default:
      fail("unsupported format character ", quote(std::string(1, format.type)));
  }
  const bool fills_zeros = conversion.has_zeros && is_number && !conversion.is_left;
  const char align = conversion.is_left ? '<' : fills_zeros ? '=' : '>';
  return pad(runtime_, number, conversion.width, align, fills_zeros ? "0" : " ");
}

Value PrintfFormatter::run() {
  while (at_ < format_.size()) {
    const size_t percent = std::min(format_.find('%', at_), format_.size());
    append(format_.substr(at_, percent - at_));
    at_ = percent + 1;
    if (percent == format_.size()) break;
    runtime_.step();
    const Conversion conversion = read_conversion();
    if (conversion.number.type == '%') {
      append("%");
    } else {
      append(convert(conversion, next_value(conversion)));
    }
  }
  const size_t num_given = values_.is(Kind::kTuple)                       ? values_.items().size()
                           : values_.is_dict() || values_.is(Kind::kList) ? 0
                                                                          : 1;
  if (num_used_ < num_given) fail("not all arguments converted during string formatting");
  return runtime_.string(std::move(out_));
}

}  // namespace

Value printf_format(Runtime& runtime, std::string_view format, const Value& values) {
  return PrintfFormatter(runtime, format, values).run();
}

}  // namespace halley::jinja
