#include "halley/server/http/answer_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <ctime>

#include "halley/base/check.h"
#include "halley/base/str.h"

namespace halley {
namespace {

struct Reason {
  int status;
  std::string_view text;
};

// The reason phrases of RFC 9110 that routes may need. Other statuses have an empty one, which the
// syntax allows.
constexpr Reason kReasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

std::string_view reason_of(int status) {
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.text;
  }
  return {};
}

// IMF-fixdate (RFC 9110, 5.6.7); strftime would follow the locale.
std::string format_date(std::time_t time) {
  constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&time, &utc);
  const auto two_digits = [](int value) {
    return std::string{static_cast<char>('0' + value / 10), static_cast<char>('0' + value % 10)};
  };
  return std::string(kDays[static_cast<size_t>(utc.tm_wday)]) + ", " + two_digits(utc.tm_mday) +
         " " + kMonths[static_cast<size_t>(utc.tm_mon)] + " " + std::to_string(1900 + utc.tm_year) +
         " " + two_digits(utc.tm_hour) + ":" + two_digits(utc.tm_min) + ":" +
         two_digits(utc.tm_sec) + " GMT";
}

bool is_value(std::string_view value) {
  return std::none_of(value.begin(), value.end(), [](char c) {
    return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f';
  });
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

bool is_well_formed(const HttpResponse& response) {
  return response.status >= 200 && response.status <= 599 && is_value(response.content_type) &&
         std::all_of(response.headers.begin(), response.headers.end(), [](const auto& header) {
           return is_name(header.first) && is_value(header.second);
         });
}

bool has_body(int status) { return status != 204 && status != 304; }

std::string format_head(const HttpResponse& response, const AnswerContext& context,
                        BodyFraming framing) {
  HALLEY_DCHECK(is_well_formed(response));
  std::string out;
  out.reserve(512);
  out.append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
  out.append(reason_of(response.status)).append("\r\n");
  append_header(out, "date", format_date(std::time(nullptr)));
  append_header(out, "x-request-id", context.request_id);
  if (has_body(response.status)) {
    if (!response.content_type.empty()) append_header(out, "content-type", response.content_type);
    if (framing == BodyFraming::kLength) {
      append_header(out, "content-length", std::to_string(response.body.size()));
    } else if (framing == BodyFraming::kChunked) {
      append_header(out, "transfer-encoding", "chunked");
    }
  }
  for (const auto& [name, value] : response.headers) append_header(out, name, value);
  for (const auto& [name, value] : context.headers) append_header(out, name, value);
  if (!context.keep_alive) append_header(out, "connection", "close");
  out.append("\r\n");
  return out;
}

void append_chunk(std::string& out, std::string_view piece) {
  HALLEY_DCHECK(!piece.empty());
  std::array<char, 16> digits{};
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), piece.size(), 16);
  HALLEY_DCHECK(error == std::errc());
  out.append(digits.data(), end).append("\r\n").append(piece).append("\r\n");
}

}  // namespace halley
