#include "halley/server/openai/python_literal.h"

#include <string>
#include <utility>

#include "halley/server/openai/text_marker.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

constexpr int kDepthMax = 32;

struct Constant {
  std::string_view name;
  std::string_view json;
};
constexpr Constant kConstants[] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                   {"true", "true"}, {"false", "false"}, {"null", "null"}};

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  std::optional<OrderedJson> read_all() {
    auto value = read(0);
    skip_spaces();
    return at_ == text_.size() ? std::move(value) : std::nullopt;
  }

 private:
  std::optional<OrderedJson> read(int depth) {
    skip_spaces();
    if (depth > kDepthMax || at_ == text_.size()) return std::nullopt;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return read_string();
    if (c == '[') return read_list(']', depth);
    if (c == '(') return read_list(')', depth);
    if (c == '{') return read_dict(depth);
    return read_word();
  }

  // A number, or a constant.
  std::optional<OrderedJson> read_word() {
    const size_t end = std::min(text_.find_first_of(" \t\r\n,:)]}", at_), text_.size());
    std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    for (const auto& [name, json] : kConstants) {
      if (word == name) return OrderedJson::parse(json);
    }
    if (word.starts_with('+')) word.remove_prefix(1);
    OrderedJson number = parse_json_or_null(word);
    if (!number.is_number()) return std::nullopt;
    return number;
  }

  std::optional<OrderedJson> read_string() {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote) return OrderedJson(std::move(out));
      if (c != '\\') {
        out += c;
      } else if (at_ == text_.size() || !read_escape(out)) {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  // Appends the character behind a backslash.
  bool read_escape(std::string& out) {
    constexpr std::string_view kNames = "ntr\\'\"", kCharacters = "\n\t\r\\'\"";
    const char c = text_[at_++];
    const size_t index = kNames.find(c);
    if (index != std::string_view::npos) {
      out += kCharacters[index];
      return true;
    }
    if (c != 'u' && c != 'x') {  // Python keeps the backslash
      out += '\\';
      out += c;
      return true;
    }
    const size_t num_digits = c == 'u' ? 4 : 2;
    std::string escape = "\\u" + std::string(4 - num_digits, '0');
    escape += text_.substr(at_, num_digits);
    at_ = std::min(at_ + num_digits, text_.size());
    // A character beyond U+FFFF is two escapes.
    if (c == 'u' && text_.substr(at_, 2) == "\\u" && (escape[2] == 'd' || escape[2] == 'D')) {
      escape += text_.substr(at_, 6);
      at_ = std::min(at_ + 6, text_.size());
    }
    const OrderedJson json = parse_json_or_null("\"" + escape + "\"");
    if (!json.is_string()) return false;
    out += json.get_ref<const std::string&>();
    return true;
  }

  std::optional<OrderedJson> read_list(char close, int depth) {
    OrderedJson list = OrderedJson::array();
    ++at_;
    while (!skip(close)) {
      if (!list.empty() && !skip(',')) return std::nullopt;
      if (!list.empty() && skip(close)) break;  // behind a last comma
      auto item = read(depth + 1);
      if (!item) return std::nullopt;
      list.push_back(std::move(*item));
    }
    return list;
  }

  std::optional<OrderedJson> read_dict(int depth) {
    OrderedJson dict = OrderedJson::object();
    ++at_;
    while (!skip('}')) {
      if (!dict.empty() && !skip(',')) return std::nullopt;
      if (!dict.empty() && skip('}')) break;
      const auto key = read(depth + 1);
      if (!key || !key->is_string() || !skip(':')) return std::nullopt;
      auto value = read(depth + 1);
      if (!value) return std::nullopt;
      dict[key->get_ref<const std::string&>()] = std::move(*value);
    }
    return dict;
  }

  void skip_spaces() { at_ += num_leading_spaces(text_.substr(at_)); }
  bool skip(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<OrderedJson> parse_python_literal(std::string_view text) {
  return LiteralReader(text).read_all();
}

}  // namespace halley
