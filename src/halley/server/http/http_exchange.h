// One HTTP request and its answer, as the routes see them, without sockets.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halley {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// A client's request, within the server's limits.
struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // as sent, before "?", not percent-decoded: "/v1/models"
  std::string query;    // after "?"; empty: none
  std::string body;     // complete
  HttpHeaders headers;  // names in lower case, in the order sent
  std::string client;   // "127.0.0.1:51234"
  std::string id;       // x-request-id if it is short and printable, else generated

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
  HttpHeaders headers = {};  // other than content type, length, x-request-id and HTTP's own
};

/// The answer in progress. All members may be called from any thread; calls for one exchange must
/// not overlap. Call either respond() once, or start_stream(), write()s and finish(). After the
/// client is gone, they do nothing.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;

  virtual void respond(HttpResponse response) = 0;

  /// Sends status line and headers of a body of unknown length; `response.body` is its first piece.
  virtual void start_stream(HttpResponse response) = 0;
  /// Sends the next piece and returns at once: bytes that the client has not read wait in memory.
  /// Returns false if the client is gone, or was disconnected since too much waits (HttpLimits).
  virtual bool write(std::string piece) = 0;
  /// Ends the stream.
  virtual void finish() = 0;
  /// For streams that are made as fast as the client reads: `on_sent` runs once when nothing of the
  /// stream waits in memory, at once on this thread, or later on a thread of the server, where it
  /// must not block. It is dropped if the client is gone. At most one may wait.
  virtual void when_sent(std::function<void()> on_sent) = 0;

  /// To be called before the first byte. Until the answer is complete, the server puts `piece` in
  /// whenever it has sent nothing for HttpServerConfig::keep_alive, so that proxies do not cut the
  /// connection; it begins the stream with `head` where start_stream() has not.
  virtual void keep_alive(HttpResponse /*head*/, std::string /*piece*/) {}
  /// False: the stream has begun, by start_stream() or keep_alive(), and write() continues it.
  /// True: nothing was sent, and nothing will be before respond() or start_stream().
  virtual bool claim_answer() { return true; }

  /// `on_gone` runs once, on a thread of the server, when the client is gone before the answer was
  /// complete; at once if that has happened already. It must not block. Call this at most once.
  virtual void on_disconnect(std::function<void()> on_gone) = 0;
};

/// Runs on a thread of the server and must not block: a slow route keeps the exchange and answers
/// from another thread. An exchange that is destroyed without an answer is answered with 500.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange> exchange)>;

struct HttpRoute {
  std::string method;  // "POST"
  std::string path;    // exact, byte for byte
  HttpHandler handler;
  bool is_open = false;  // needs no API key even if keys are set; any page may ask
  /// The bytes of `path` from here on are a name, which clients may percent-encode ("org%2Fname");
  /// 0: none are.
  size_t encoded_from = 0;
  /// `path` is followed by a name that the handler takes from the request's path: 1 to 128 letters,
  /// digits, "_" and "-".
  bool takes_name = false;
  /// The body of an error in the format of the route's API, from the status and the body in
  /// OpenAI's format; null: it stays as it is.
  std::string (*error_body)(int status, std::string_view openai_body) = nullptr;
};

}  // namespace halley
