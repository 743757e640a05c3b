#include "halley/client/http/http_client.h"

#include <array>
#include <optional>
#include <string_view>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Resolved = asio::ip::tcp::resolver::results_type;
using boost::system::error_code;

// One request and its answer. Lives as long as one of its operations is pending.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(asio::io_context& context, const HttpClientLimits& limits, HttpClientHandler handler)
      : stream_(context), limits_(limits), handler_(std::move(handler)) {
    parser_.header_limit(limits.header_bytes_max);
    parser_.body_limit(limits.body_bytes_max);
  }

  http::request<http::string_body>& request() { return request_; }

  void start(const Resolved& resolved) {
    stream_.expires_after(limits_.connect_timeout);
    stream_.async_connect(resolved, [self = shared_from_this()](error_code error, const auto&) {
      if (error) return self->fail("cannot connect", error);
      error_code ignored;
      self->stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
      self->send();
    });
  }

 private:
  void send() {
    stream_.expires_after(limits_.idle_timeout);
    http::async_write(stream_, request_, [self = shared_from_this()](error_code error, size_t) {
      // A server may answer and close before it has read the whole request: its answer counts.
      const bool is_closed =
          error == asio::error::broken_pipe || error == asio::error::connection_reset;
      if (error && !is_closed) return self->fail("cannot send the request", error);
      self->read_header();
    });
  }

  void read_header() {
    stream_.expires_after(limits_.idle_timeout);
    http::async_read_header(stream_, buffer_, parser_,
                            [self = shared_from_this()](error_code error, size_t) {
                              if (error) return self->fail("no answer", error);
                              self->take_header();
                            });
  }

  void take_header() {
    const auto& header = parser_.get();
    result_.status = header.result_int();
    const std::string_view type = std::string_view(header[http::field::content_type]);
    constexpr std::string_view kEventStream = "text/event-stream";
    result_.is_event_stream = result_.status >= 200 && result_.status < 300 &&
                              beast::iequals(type.substr(0, kEventStream.size()), kEventStream);
    if (result_.is_event_stream) events_.emplace(handler_.on_event, limits_.events);
    read_body();
  }

  // Passes bytes on as they arrive, since the times of events are measured.
  void read_body() {
    if (parser_.is_done()) return end();
    stream_.expires_after(limits_.idle_timeout);
    parser_.get().body().data = piece_.data();
    parser_.get().body().size = piece_.size();
    http::async_read_some(stream_, buffer_, parser_,
                          [self = shared_from_this()](error_code error, size_t) {
                            if (error == http::error::need_buffer) error = {};
                            if (!self->take_piece()) return;
                            if (error) return self->fail("the answer broke off", error);
                            self->read_body();
                          });
  }

  // False if the exchange has ended.
  bool take_piece() {
    const size_t num_bytes = piece_.size() - parser_.get().body().size;
    const std::string_view piece(piece_.data(), num_bytes);
    if (!events_) {
      result_.body += piece;
      return true;
    }
    try {
      events_->feed(piece);
    } catch (const InputError& error) {
      result_.error = error.what();
      end();
      return false;
    }
    return true;
  }

  void fail(const char* what, error_code error) {
    const bool is_timeout = error == beast::error::timeout;
    result_.error = str(what, ": ", is_timeout ? "timed out" : error.message());
    end();
  }

  void end() {
    error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
    handler_.on_end(std::move(result_));
  }

  beast::tcp_stream stream_;
  const HttpClientLimits& limits_;
  HttpClientHandler handler_;
  http::request<http::string_body> request_;
  http::response_parser<http::buffer_body> parser_;
  beast::flat_buffer buffer_;
  std::array<char, 16384> piece_{};
  std::optional<SseParser> events_;
  HttpClientResult result_;
};

}  // namespace

class HttpClient::Impl {
 public:
  Impl(HttpUrl url, const HttpClientLimits& limits) : url_(std::move(url)), limits_(limits) {
    error_code error;
    asio::ip::tcp::resolver resolver(context_);
    resolved_ = resolver.resolve(url_.host, url_.port, error);
    if (error) {
      throw InputError(str("http://", url_.authority(), ": expected a host that can be found, got ",
                           quote(error.message()), ". Check the name."));
    }
  }

  void start(const HttpClientRequest& request, HttpClientHandler handler) {
    const auto exchange = std::make_shared<Exchange>(context_, limits_, std::move(handler));
    auto& message = exchange->request();
    message.version(11);
    message.method_string(request.method);
    message.target(url_.path + request.target);
    message.set(http::field::host, url_.authority());
    message.set(http::field::user_agent, "halley");
    message.set(http::field::connection, "close");
    for (const auto& [name, value] : request.headers) message.set(name, value);
    message.body() = request.body;
    message.prepare_payload();
    exchange->start(resolved_);
  }

  void schedule(Clock::time_point time, std::function<void()> action) {
    const auto timer = std::make_shared<asio::steady_timer>(context_, time);
    timer->async_wait([timer, action = std::move(action)](error_code error) {
      if (!error) action();
    });
  }

  asio::io_context& context() { return context_; }

 private:
  HttpUrl url_;
  HttpClientLimits limits_;
  asio::io_context context_{1};
  Resolved resolved_;
};

HttpClient::HttpClient(HttpUrl url, const HttpClientLimits& limits)
    : impl_(std::make_unique<Impl>(std::move(url), limits)) {}

HttpClient::~HttpClient() = default;

void HttpClient::start(const HttpClientRequest& request, HttpClientHandler handler) {
  impl_->start(request, std::move(handler));
}

void HttpClient::schedule(Clock::time_point time, std::function<void()> action) {
  impl_->schedule(time, std::move(action));
}

void HttpClient::run() {
  impl_->context().restart();
  impl_->context().run();
}

void HttpClient::stop() { impl_->context().stop(); }

}  // namespace halley
