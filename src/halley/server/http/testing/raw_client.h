// A client for tests that sends any bytes and reads answers by its own reading of RFC 9112.
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

/// Blocking; every wait ends after 20 s with what is there, so that a test fails and does not hang.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  /// False: the server has closed.
  bool send(std::string_view bytes);
  /// The next answer. `is_head`: it has no body.
  RawAnswer receive(bool is_head = false);
  /// Up to and with `end`; what came behind stays for later.
  std::string receive_until(std::string_view end);
  /// Whether the server closes without another byte.
  bool is_closed_by_server();
  /// Whether bytes or the end arrive within this time.
  bool has_input(int wait_ms);
  void close_sending();
  void close();
  /// The connection is reset instead of ended.
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
