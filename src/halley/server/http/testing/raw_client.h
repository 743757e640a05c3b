// A client for tests that sends any bytes and parses answers independently (RFC 9112).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace halley {

struct RawAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string head;
  std::string body;          // without the framing of chunks
  bool is_complete = false;  // false: the connection ended before
};

/// Blocking; every wait ends after 20 s with the bytes received so far, so that tests do not hang.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  /// Returns false if the server has closed.
  bool send(std::string_view bytes);
  /// Reads the next answer. `is_head`: it has no body.
  RawAnswer receive(bool is_head = false);
  /// Reads up to and including `end`; later bytes stay in the buffer.
  std::string receive_until(std::string_view end);
  /// Whether the server closes without another byte.
  bool is_closed_by_server();
  /// Whether bytes or the end arrive within this time.
  bool has_input(int wait_ms);
  void close_sending();
  void close();
  /// Resets the connection instead of closing it.
  void reset();
  bool is_open() const { return socket_ >= 0; }

 private:
  bool receive_some();
  std::optional<std::string> take(size_t num_bytes);
  void receive_chunks(RawAnswer& answer);

  int socket_ = -1;
  std::string inbox_;
};

/// Connects, sends, and reads one answer.
RawAnswer ask(uint16_t port, std::string_view bytes);
/// Asks again until the answer has this status, at most 20 s; then the last one.
RawAnswer ask_until(uint16_t port, std::string_view bytes, int status);

}  // namespace halley
