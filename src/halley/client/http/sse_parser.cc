#include "halley/client/http/sse_parser.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {

SseParser::SseParser(OnEvent on_event, const SseLimits& limits)
    : on_event_(std::move(on_event)), limits_(limits) {}

void SseParser::feed(std::string_view piece) {
  while (!piece.empty()) {
    if (std::exchange(is_after_return_, false) && piece.front() == '\n') {
      piece.remove_prefix(1);
      continue;
    }
    const size_t end = piece.find_first_of("\r\n");
    const std::string_view part = piece.substr(0, end);
    if (line_.size() + part.size() > limits_.line_bytes_max) {
      throw InputError(str("event stream: expected lines of at most ", limits_.line_bytes_max,
                           " bytes, got more."));
    }
    line_ += part;
    if (end == std::string_view::npos) return;
    is_after_return_ = piece[end] == '\r';
    piece.remove_prefix(end + 1);
    take_line();
    line_.clear();
  }
}

void SseParser::take_line() {
  std::string_view line = line_;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (std::exchange(is_first_line_, false) && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  if (line.empty()) {
    if (std::exchange(has_data_, false)) {
      on_event_({type_.empty() ? "message" : std::exchange(type_, {}), std::exchange(data_, {})});
    }
    type_.clear();
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return take_field(line, {});
  std::string_view value = line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  take_field(line.substr(0, colon), value);
}

void SseParser::take_field(std::string_view name, std::string_view value) {
  if (name == "event") {
    type_ = value;
  } else if (name == "data") {
    if (data_.size() + value.size() + 1 > limits_.event_bytes_max) {
      throw InputError(str("event stream: expected events of at most ", limits_.event_bytes_max,
                           " bytes, got more."));
    }
    if (std::exchange(has_data_, true)) data_ += '\n';
    data_ += value;
  }
}

}  // namespace halley
