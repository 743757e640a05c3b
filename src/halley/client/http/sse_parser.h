// Parses server-sent events from bytes (WHATWG HTML, section 9.2.6 "Interpreting an event stream").
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace halley {

struct SseEvent {
  std::string type;  // "message" unless the stream says otherwise
  std::string data;  // the data lines, joined by '\n'
};

struct SseLimits {
  size_t line_bytes_max = size_t{1} << 20;
  size_t event_bytes_max = size_t{4} << 20;  // data of one event
};

/// Incremental: the text may be split anywhere. Fields "id" and "retry", comments and unknown
/// fields are dropped. An event without a blank line at its end is dropped, as the standard
/// demands.
class SseParser {
 public:
  using OnEvent = std::function<void(SseEvent)>;

  explicit SseParser(OnEvent on_event, const SseLimits& limits = {});

  /// Calls back for every event that `piece` completes. Throws InputError if a limit is passed;
  /// the parser must not be used afterwards.
  void feed(std::string_view piece);

 private:
  void take_line();
  void take_field(std::string_view name, std::string_view value);

  OnEvent on_event_;
  SseLimits limits_;
  std::string line_;
  std::string type_, data_;
  bool has_data_ = false;
  bool is_first_line_ = true;
  bool is_after_return_ = false;  // the last byte was '\r': a '\n' now belongs to it
};

}  // namespace halley
