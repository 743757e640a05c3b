#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/text.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value);
  std::string take() { return std::move(out_); }

 private:
  void write_string(std::string_view text);
  void write_escape(uint32_t code_point);
  void write_items(const std::vector<Value>& items);
  void write_members(const Members& members);
  void write_key(const Value& key);
  void start_line();
  void append(std::string_view text) {
    out_ += text;
    runtime_.check_string_size(out_.size());
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  std::string out_;
  size_t depth_ = 0;
};

std::string float_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_text(value);
}

void JsonWriter::write_escape(uint32_t code_point) {
  std::array<char, 16> buffer{};
  if (code_point >= 0x10000) {
    const uint32_t rest = code_point - 0x10000;
    std::snprintf(buffer.data(), buffer.size(), "\\u%04x\\u%04x", 0xD800 + (rest >> 10),
                  0xDC00 + (rest & 0x3FF));
  } else {
    std::snprintf(buffer.data(), buffer.size(), "\\u%04x", code_point);
  }
  out_ += buffer.data();
}

void JsonWriter::write_string(std::string_view text) {
  runtime_.step_bytes(text.size());
  append("\"");
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    switch (c) {
      case '"':
        out_ += "\\\"";
        break;
      case '\\':
        out_ += "\\\\";
        break;
      case '\n':
        out_ += "\\n";
        break;
      case '\r':
        out_ += "\\r";
        break;
      case '\t':
        out_ += "\\t";
        break;
      case '\b':
        out_ += "\\b";
        break;
      case '\f':
        out_ += "\\f";
        break;
      default:
        if (c < 0x20 || (style_.is_ascii && c > 0x7E)) {
          write_escape(c);
        } else {
          append_code_point(out_, c);
        }
    }
  }
  append("\"");
}

void JsonWriter::start_line() {
  if (!style_.has_indent) return;
  append("\n");
  runtime_.check_string_size(style_.indent.size() * depth_);
  for (size_t i = 0; i < depth_; ++i) append(style_.indent);
}

void JsonWriter::write_items(const std::vector<Value>& items) {
  if (items.empty()) return append("[]");
  append("[");
  ++depth_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append(style_.item_separator);
    start_line();
    write(items[i]);
  }
  --depth_;
  start_line();
  append("]");
}

void JsonWriter::write_key(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return write_string(key.text());
    case Kind::kNone:
      return append("\"null\"");
    case Kind::kBool:
      return append(key.as_bool() ? "\"true\"" : "\"false\"");
    case Kind::kInt:
      return append(str('"', key.as_int(), '"'));
    case Kind::kFloat:
      return append(str('"', float_json(key.as_double()), '"'));
    default:
      fail("keys must be str, int, float, bool or None, not ", type_name_of(key.kind()));
  }
}

void JsonWriter::write_members(const Members& members) {
  if (members.empty()) return append("{}");
  std::vector<const std::pair<Value, Value>*> order;
  for (const auto& member : members) order.push_back(&member);
  if (style_.sorts_keys) {
    std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
      return is_less(runtime_, a->first, b->first);
    });
  }
  append("{");
  ++depth_;
  bool is_first = true;
  for (const auto* member : order) {
    if (!is_first) append(style_.item_separator);
    is_first = false;
    start_line();
    write_key(member->first);
    append(style_.key_separator);
    write(member->second);
  }
  --depth_;
  start_line();
  append("}");
}

void JsonWriter::write(const Value& value) {
  runtime_.step();
  switch (value.kind()) {
    case Kind::kNone:
      return append("null");
    case Kind::kBool:
      return append(value.as_bool() ? "true" : "false");
    case Kind::kInt:
      return append(std::to_string(value.as_int()));
    case Kind::kFloat:
      return append(float_json(value.as_double()));
    case Kind::kString:
      return write_string(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return write_items(value.items());
    case Kind::kDict:
      return write_members(value.dict().members);
    default:
      fail("Object of type ", type_name_of(value.kind()), " is not JSON serializable");
  }
}

}  // namespace

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return writer.take();
}

}  // namespace halley::jinja
