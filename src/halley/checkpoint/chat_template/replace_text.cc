#include "halley/checkpoint/chat_template/replace_text.h"

#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {
namespace {

// An empty text is found before every character and at the end.
std::string insert_between(Runtime& runtime, std::string_view text, std::string_view by,
                           int64_t count) {
  std::string out;
  for (size_t at = 0; count != 0; --count) {
    out += by;
    runtime.step_bytes(by.size());
    runtime.check_string_size(out.size());
    if (at == text.size()) return out;
    const size_t begin = at;
    next_code_point(text, at);
    out += text.substr(begin, at - begin);
    if (count == 1) return out += text.substr(at);
  }
  return std::string(text);
}

}  // namespace

std::string replace_text(Runtime& runtime, std::string_view text, std::string_view old,
                         std::string_view by, int64_t count) {
  runtime.step_bytes(text.size());
  if (old.empty()) return insert_between(runtime, text, by, count);
  std::string out;
  size_t begin = 0;
  for (size_t at = find_text(text, old); at != std::string_view::npos && count != 0;
       at = find_text(text, old, begin), --count) {
    out += text.substr(begin, at - begin);
    out += by;
    runtime.step_bytes(by.size());
    runtime.check_string_size(out.size());
    begin = at + old.size();
  }
  return out += text.substr(begin);
}

}  // namespace halley::jinja
