#include "halley/server/http/request_parser.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <boost/beast/http/basic_parser.hpp>

#include "halley/base/str.h"
#include "halley/server/http/http_error.h"
#include "halley/server/http/request_head.h"

namespace halley {

namespace beast = boost::beast;
using BeastError = beast::error_code;
using BeastText = beast::string_view;

namespace {

// "0", CRLF, CRLF. A chunked body has at least so many bytes to come until it is complete, and
// Beast's basic_parser asserts that it sees them when it comes back to a last chunk.
constexpr size_t kLastChunkBytes = 5;

// Whether the first line ends with a version of HTTP; Beast calls all else in its place one, too.
bool names_other_version(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find_first_of("\r\n"));
  const std::string_view version = line.substr(line.size() < 8 ? 0 : line.size() - 8);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return version.size() == 8 && version.starts_with("HTTP/") && is_digit(version[5]) &&
         version[6] == '.' && is_digit(version[7]) && !version.ends_with("1.1") &&
         !version.ends_with("1.0");
}

}  // namespace

// Beast parses the syntax and calls back with the parts. Its gaps are checked here.
class RequestParser::Impl final : public beast::http::basic_parser<true> {
 public:
  Impl(const HttpLimits& limits, std::shared_ptr<ByteBudget> budget)
      : limits_(limits), reservation_(std::move(budget)) {
    eager(false);
    body_limit(boost::none);  // checked here, after the caller has seen the head
    header_limit(static_cast<uint32_t>(std::min<size_t>(limits.header_bytes_max, UINT32_MAX)));
  }

  size_t parse(std::string_view bytes) {
    size_t num_used = skip_blank_line(bytes);
    while (state_ == State::kHead || state_ == State::kBody) {
      const std::string_view rest = bytes.substr(num_used);
      if (rest.size() < (state_ == State::kBody && head_.is_chunked ? kLastChunkBytes : 1)) break;
      BeastError error;
      const size_t num = put(boost::asio::const_buffer(rest.data(), rest.size()), error);
      num_used += num;
      const bool was_head = state_ == State::kHead;
      if (was_head) num_head_bytes_ += num;
      const size_t num_waiting = error == beast::http::error::need_more ? rest.size() - num : 0;
      if (is_too_long(num_waiting)) break;
      if (error == beast::http::error::need_more) break;
      if (error) {
        reject_syntax(error, rest);
        break;
      }
      if (was_head && is_header_done()) {
        finish_head();
        break;
      }
      if (is_done()) state_ = State::kDone;
    }
    return num_used;
  }

  bool accept_body_length() {
    if (head_.content_length > limits_.body_bytes_max) reject_large_body();
    return state_ != State::kRejected;
  }

  State state_ = State::kHead;
  HttpRequest request_;
  RequestFraming framing_;
  std::optional<HttpResponse> rejection_;
  const HttpLimits& limits_;
  ByteReservation reservation_;

 private:
  // RFC 9112, 2.2: an empty line in front of a request is to be ignored.
  size_t skip_blank_line(std::string_view bytes) {
    size_t num = 0;
    while (num < bytes.size() && num_blank_bytes_ < 2 && num_head_bytes_ == 0 && !got_some() &&
           bytes[num] == "\r\n"[num_blank_bytes_]) {
      ++num;
      ++num_blank_bytes_;
    }
    if (num_blank_bytes_ == 1 && num < bytes.size()) {
      reject(http_error(400, "Request line: expected a method.", "bad_request"));
    }
    return num;
  }

  void reject(HttpResponse response) {
    state_ = State::kRejected;
    if (!rejection_.has_value()) rejection_ = std::move(response);
  }

  // The callbacks' error, which stops Beast.
  void reject(HttpResponse response, BeastError& error) {
    reject(std::move(response));
    error = beast::http::error::bad_value;
  }

  void reject_chunk(BeastError& error) {
    reject(http_error(400, "Body: chunk extensions or trailers are too long.", "bad_chunk"), error);
  }

  void reject_large_body() {
    reject(http_error(413, str("Body: expected at most ", limits_.body_bytes_max, " bytes."),
                      "body_too_large"));
  }

  // `bytes` begin at or before the wrong line.
  void reject_syntax(const BeastError& error, std::string_view bytes) {
    if (error == beast::http::error::header_limit) {
      reject_long_head();
    } else if (error == beast::http::error::bad_version && names_other_version(bytes)) {
      reject(http_error(505, "Request line: expected HTTP/1.1.", "bad_version"));
    } else if (error == beast::http::error::bad_transfer_encoding ||
               error == beast::http::error::bad_content_length ||
               error == beast::http::error::multiple_content_length) {
      reject(http_error(400,
                        "Length of the body: expected one content-length or one "
                        "transfer-encoding.",
                        "conflicting_lengths"));
    } else {
      reject(
          http_error(400, str("Not a well-formed request: ", error.message(), "."), "bad_request"));
    }
  }

  void reject_long_head() {
    if (request_.method.empty()) {
      reject(http_error(
          414, str("Request target: expected at most ", limits_.target_bytes_max, " bytes."),
          "target_too_long"));
    } else {
      reject(http_error(431, str("Headers: expected at most ", limits_.header_bytes_max, " bytes."),
                        "headers_too_large"));
    }
  }

  // `num_waiting` bytes are not consumed yet, since they are incomplete.
  bool is_too_long(size_t num_waiting) {
    if (state_ == State::kHead && num_head_bytes_ + num_waiting > limits_.header_bytes_max) {
      reject_long_head();
    } else if (state_ == State::kBody && num_waiting > limits_.header_bytes_max) {
      reject(http_error(400, "Body: a chunk's line or the trailers are too long.", "bad_chunk"));
    }
    return state_ == State::kRejected;
  }

  void finish_head() {
    if (auto rejection = read_head(request_, framing_.is_http_1_0, head_)) {
      reject(std::move(*rejection));
      return;
    }
    framing_.has_body = head_.is_chunked || head_.content_length > 0;
    framing_.expects_continue = head_.expects_continue && !framing_.is_http_1_0;
    framing_.keep_alive = keep_alive() && !framing_.is_http_1_0;
    state_ = framing_.has_body ? State::kBody : State::kDone;
    // Both have read the same headers: if they disagreed, the next request would begin elsewhere.
    if (framing_.has_body == is_done()) {
      reject(http_error(400, "Length of the body is not clear.", "bad_framing"));
    }
  }

  void on_request_impl(beast::http::verb, BeastText method, BeastText target, int version,
                       BeastError& error) override {
    request_.method = std::string_view(method.data(), method.size());
    framing_.is_http_1_0 = version == 10;
    if (target.size() > limits_.target_bytes_max) {
      reject(http_error(414,
                        str("Request target: expected at most ", limits_.target_bytes_max,
                            " bytes, got ", target.size(), "."),
                        "target_too_long"),
             error);
      return;
    }
    if (auto rejection = read_target({target.data(), target.size()}, request_)) {
      reject(std::move(*rejection), error);
    }
  }

  void on_field_impl(beast::http::field, BeastText name, BeastText value,
                     BeastError& error) override {
    if (state_ != State::kHead) {
      // Trailers are skipped: no header after the head may matter.
      num_trailer_bytes_ += name.size() + value.size();
      if (num_trailer_bytes_ > limits_.header_bytes_max) reject_chunk(error);
      return;
    }
    if (request_.headers.size() >= limits_.num_headers_max) {
      reject(http_error(431, str("Headers: expected at most ", limits_.num_headers_max, "."),
                        "too_many_headers"),
             error);
      return;
    }
    std::string key = lower_case({name.data(), name.size()});
    if (key == "x-request-id" && is_request_id({value.data(), value.size()})) {
      request_.id = std::string_view(value.data(), value.size());
    }
    request_.headers.emplace_back(std::move(key), std::string(value.data(), value.size()));
  }

  size_t append(BeastText piece, BeastError& error) {
    if (piece.size() > limits_.body_bytes_max - request_.body.size()) {
      reject_large_body();
      error = beast::http::error::body_limit;
      return 0;
    }
    const size_t num_bytes = request_.body.size() + piece.size();
    const size_t num_counted = std::max(request_.body.size(), limits_.free_body_bytes);
    if (num_bytes > num_counted && !reservation_.try_grow(num_bytes - num_counted)) {
      HttpResponse busy =
          http_error(503, "The server holds as many requests as it can. Try again.", "overloaded");
      busy.headers.emplace_back("retry-after", "1");
      reject(std::move(busy), error);
      return 0;
    }
    request_.body.append(piece.data(), piece.size());
    return piece.size();
  }

  void on_chunk_header_impl(uint64_t size, BeastText extension, BeastError& error) override {
    num_extension_bytes_ += extension.size();
    if (size > limits_.body_bytes_max - request_.body.size()) {
      reject_large_body();
      error = beast::http::error::body_limit;
    } else if (num_extension_bytes_ > limits_.header_bytes_max) {
      reject_chunk(error);
    }
  }

  size_t on_body_impl(BeastText piece, BeastError& error) override { return append(piece, error); }
  size_t on_chunk_body_impl(uint64_t, BeastText piece, BeastError& error) override {
    return append(piece, error);
  }
  void on_header_impl(BeastError&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, BeastError&) override {}
  void on_finish_impl(BeastError&) override {}
  void on_response_impl(int, BeastText, int, BeastError&) override {}

  RequestHead head_;
  size_t num_head_bytes_ = 0;
  size_t num_blank_bytes_ = 0;
  size_t num_extension_bytes_ = 0;
  size_t num_trailer_bytes_ = 0;
};

RequestParser::RequestParser(const HttpLimits& limits, std::shared_ptr<ByteBudget> budget)
    : impl_(std::make_unique<Impl>(limits, std::move(budget))) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::parse(std::string_view bytes) { return impl_->parse(bytes); }
RequestParser::State RequestParser::state() const { return impl_->state_; }
bool RequestParser::accept_body_length() { return impl_->accept_body_length(); }
HttpRequest& RequestParser::request() { return impl_->request_; }
const RequestFraming& RequestParser::framing() const { return impl_->framing_; }
HttpResponse RequestParser::take_rejection() { return std::move(impl_->rejection_).value(); }
ByteReservation RequestParser::take_reservation() { return std::move(impl_->reservation_); }

}  // namespace halley
