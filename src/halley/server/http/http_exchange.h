// One HTTP request and the answer to it, as the routes see them: nothing of sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halley {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// What a client sent, within the server's limits.
struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // as it was sent, before "?"; no percent-decoding: "/v1/models"
  std::string query;    // behind "?"; empty: none
  std::string body;     // complete
  HttpHeaders headers;  // names in lower case, in the order sent
  std::string client;   // "127.0.0.1:51234"
  std::string id;       // x-request-id where it is short and printable, else made here

  /// The first header of this lower-case name; null: none.
  const std::string* find_header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers = {};  // beside content type, length, x-request-id and what HTTP needs itself
};

/// The answer in progress. All members may be called from any thread; calls of one exchange must
/// not overlap. Either respond() once, or start_stream(), write()s and finish(). After the client
/// has gone, all of them do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;

  virtual void respond(HttpResponse response) = 0;

  /// Status line and headers of a body of unknown length; `response.body` is its first piece.
  virtual void start_stream(HttpResponse response) = 0;
  /// The next piece, which is sent at once. Returns at once too: what the client has not read yet
  /// waits in memory. False: the client has gone, or so much waits (HttpLimits) that it was
  /// disconnected.
  virtual bool write(std::string piece) = 0;
  /// The end of the stream.
  virtual void finish() = 0;

  /// `on_gone` runs once, on a thread of the server, when the client has gone before the answer was
  /// complete; at once where that has happened already. It must not block. To be called at most
  /// once.
  virtual void on_disconnect(std::function<void()> on_gone) = 0;
};

/// Runs on a thread of the server and must not block: what takes longer keeps the exchange and
/// answers from elsewhere. An exchange that is destroyed without an answer is answered with 500.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange> exchange)>;

struct HttpRoute {
  std::string method;  // "POST"
  std::string path;    // exact, byte for byte
  HttpHandler handler;
  bool is_open = false;  // needs no API key even where keys are set
};

}  // namespace halley
