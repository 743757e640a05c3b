#include "halley/checkpoint/chat_template/to_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <utf8proc.h>

#include "halley/checkpoint/chat_template/callable.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime) {}

  void write(const Value& value);
  std::string take() { return std::move(out_); }

 private:
  void write_string(std::string_view text);
  void write_items(const std::vector<Value>& items, const char* open, const char* close);
  void write_members(const Members& members);
  void write_namespace(const NamespacePayload& space);
  void write_range(const RangePayload& range);
  void append(std::string_view text) {
    out_ += text;
    runtime_.check_string_size(out_.size());
  }

  Runtime& runtime_;
  std::string out_;
  int depth_ = 0;
};

bool is_printable(uint32_t code_point) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code_point == ' ';
    default:
      return true;
  }
}

void ReprWriter::write_string(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  runtime_.step_bytes(text.size());
  std::string part(1, quote);
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      part += '\\';
      part += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      part += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      append_code_point(part, c);
    } else {
      std::array<char, 16> buffer{};
      std::snprintf(buffer.data(), buffer.size(),
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    c);
      part += buffer.data();
    }
  }
  part += quote;
  append(part);
}

void ReprWriter::write_items(const std::vector<Value>& items, const char* open, const char* close) {
  append(open);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append(", ");
    write(items[i]);
  }
  append(close);
}

void ReprWriter::write_members(const Members& members) {
  append("{");
  bool is_first = true;
  for (const auto& [key, value] : members) {
    if (!is_first) append(", ");
    is_first = false;
    write(key);
    append(": ");
    write(value);
  }
  append("}");
}

void ReprWriter::write_namespace(const NamespacePayload& space) {
  append("<Namespace {");
  bool is_first = true;
  for (const auto& [name, value] : space.members) {
    if (!is_first) append(", ");
    is_first = false;
    write_string(name);
    append(": ");
    write(value);
  }
  append("}>");
}

void ReprWriter::write_range(const RangePayload& range) {
  append(str("range(", range.start, ", ", range.stop));
  if (range.step != 1) append(str(", ", range.step));
  append(")");
}

void ReprWriter::write(const Value& value) {
  runtime_.step();
  // A namespace may hold itself.
  if (++depth_ > kValueDepthMax) fail("a value is nested too deep to be written");
  switch (value.kind()) {
    case Kind::kUndefined:
      append("Undefined");
      break;
    case Kind::kNone:
      append("None");
      break;
    case Kind::kBool:
      append(value.as_bool() ? "True" : "False");
      break;
    case Kind::kInt:
      append(std::to_string(value.as_int()));
      break;
    case Kind::kFloat:
      append(float_text(value.as_double()));
      break;
    case Kind::kString:
      write_string(value.text());
      break;
    case Kind::kList:
      write_items(value.items(), "[", "]");
      break;
    case Kind::kTuple:
      write_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
      break;
    case Kind::kDict:
      write_members(value.dict().members);
      break;
    case Kind::kView:
      append(value.get<ListPayload>().name);
      write_items(value.items(), "([", "])");
      break;
    case Kind::kRange:
      write_range(value.get<RangePayload>());
      break;
    case Kind::kNamespace:
      write_namespace(value.get<NamespacePayload>());
      break;
    case Kind::kLoop: {
      append(str("<LoopContext ", value.get<LoopPayload>().index0 + 1, "/",
                 length_of(value).value_or(0), ">"));
      break;
    }
    case Kind::kMacro:
      append(describe_macro(value));
      break;
    default:
      // Python prints an address here, which no template can mean.
      fail("a ", type_name_of(value.kind()), " cannot be written as text");
  }
  --depth_;
}

}  // namespace

std::string to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return to_repr(runtime, value);
}

std::string to_repr(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  writer.write(value);
  return writer.take();
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent >= -4 && exponent < 16) {
    // The same digits, without an exponent.
    const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::fixed);
    std::string result(buffer.data(), fixed.ptr);
    if (result.find('.') == std::string::npos) result += ".0";
    return result;
  }
  return std::string(text);
}

}  // namespace halley::jinja
