#include "halley/server/http/request_head.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "halley/base/str.h"
#include "halley/server/http/http_error.h"

namespace halley {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// Headers that must not be repeated, since a proxy could read the other one.
constexpr std::string_view kSingleHeaders[] = {
    "host",   "content-length",   "content-type",      "authorization",
    "expect", "content-encoding", "transfer-encoding", "origin"};

std::optional<HttpResponse> check_single_headers(const HttpRequest& request) {
  for (const std::string_view name : kSingleHeaders) {
    const auto num = std::count_if(request.headers.begin(), request.headers.end(),
                                   [&](const auto& header) { return header.first == name; });
    if (num > 1) {
      return http_error(400, str("Header ", name, ": expected one, got ", num, "."),
                        "duplicate_header");
    }
  }
  return std::nullopt;
}

std::optional<HttpResponse> check_host(const HttpRequest& request, bool is_http_1_0) {
  const std::string* host = request.find_header("host");
  if (host == nullptr) {
    if (is_http_1_0) return std::nullopt;
    return http_error(400, "Header host: expected one, got none.", "missing_host");
  }
  const bool is_valid = std::all_of(host->begin(), host->end(), [](char c) {
    return is_letter_or_digit(c) || std::string_view("-._~:[]%").find(c) != std::string_view::npos;
  });
  if (!is_valid) return http_error(400, "Header host: expected a name and a port.", "bad_host");
  return std::nullopt;
}

std::optional<HttpResponse> read_framing(const HttpRequest& request, bool is_http_1_0,
                                         RequestHead& head) {
  const std::string* coding = request.find_header("transfer-encoding");
  const std::string* length = request.find_header("content-length");
  if (coding != nullptr) {
    if (length != nullptr) {
      return http_error(400, "Headers transfer-encoding and content-length: expected one of them.",
                        "conflicting_lengths");
    }
    if (is_http_1_0) {
      return http_error(400, "Header transfer-encoding: not part of HTTP/1.0.", "bad_framing");
    }
    if (lower_case(*coding) != "chunked") {
      return http_error(501, "Header transfer-encoding: expected 'chunked'.", "bad_framing");
    }
    head.is_chunked = true;
  }
  if (length != nullptr) {
    const char* end = length->data() + length->size();
    const auto [stop, error] = std::from_chars(length->data(), end, head.content_length);
    // from_chars of an unsigned type takes digits alone: no sign, no space, no list.
    if (error != std::errc() || stop != end) {
      return http_error(400, "Header content-length: expected one decimal number.", "bad_length");
    }
  }
  return std::nullopt;
}

std::optional<HttpResponse> read_expectations(const HttpRequest& request, RequestHead& head) {
  if (const std::string* expect = request.find_header("expect")) {
    if (lower_case(*expect) != "100-continue") {
      return http_error(417, "Header expect: expected '100-continue'.", "bad_expectation");
    }
    head.expects_continue = true;
  }
  const std::string* coding = request.find_header("content-encoding");
  if (coding != nullptr && lower_case(*coding) != "identity") {
    return http_error(415,
                      "Header content-encoding: compressed bodies are not read; send it as it "
                      "is.",
                      "unsupported_encoding");
  }
  return std::nullopt;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
}

std::optional<HttpResponse> read_target(std::string_view target, HttpRequest& request) {
  const bool is_server = target == "*" && request.method == "OPTIONS";
  const bool is_ascii =
      std::all_of(target.begin(), target.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if ((!target.starts_with('/') && !is_server) || !is_ascii ||
      target.find('#') != std::string_view::npos) {
    return http_error(400,
                      "Request target: expected a path that begins with '/', in ASCII, "
                      "without '#'.",
                      "bad_target");
  }
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
  return std::nullopt;
}

std::optional<HttpResponse> read_head(const HttpRequest& request, bool is_http_1_0,
                                      RequestHead& head) {
  if (auto rejection = check_single_headers(request)) return rejection;
  if (auto rejection = check_host(request, is_http_1_0)) return rejection;
  if (auto rejection = read_framing(request, is_http_1_0, head)) return rejection;
  return read_expectations(request, head);
}

}  // namespace halley
