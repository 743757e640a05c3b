// Any bytes as what a client sends: the first one says whether keys are set, whether the server is
// one of this machine alone, and where the rest is cut into pieces. A request may reach a route
// only where this file, which reads the bytes by its own rules, finds the same request in them; and
// where the pieces end may not change what it is.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/base/byte_budget.h"
#include "halley/base/check.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/http/http_limits.h"
#include "halley/server/http/request_gate.h"
#include "halley/server/http/request_intake.h"

namespace {

using halley::HttpHandler;
using halley::HttpLimits;
using halley::HttpRequest;
using halley::HttpRoute;
using halley::RequestIntake;

constexpr std::string_view kKey = "key";
constexpr size_t kNamesAt = 6;  // "/v1/x/"

HttpLimits small_limits() {
  HttpLimits limits;
  limits.header_bytes_max = 512;
  limits.num_headers_max = 12;
  limits.target_bytes_max = 64;
  limits.body_bytes_max = 1000;
  limits.all_bodies_bytes_max = 2000;
  limits.free_body_bytes = 100;
  return limits;
}

std::vector<HttpRoute> make_routes() {
  const HttpHandler none = [](const std::shared_ptr<halley::HttpExchange>&) {};
  return {{"GET", "/health", none, true},
          {"POST", "/v1/x", none},
          {"GET", "/v1/x", none},
          {"GET", "/v1/x/org/name", none, false, kNamesAt}};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string decoded(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const std::string digits(path.substr(std::min(i + 1, path.size()), 2));
    const bool is_escape = path[i] == '%' && digits.size() == 2 &&
                           std::isxdigit(static_cast<unsigned char>(digits[0])) &&
                           std::isxdigit(static_cast<unsigned char>(digits[1]));
    HALLEY_CHECK(is_escape || path[i] != '%', path);
    out += is_escape ? static_cast<char>(std::strtoul(digits.c_str(), nullptr, 16)) : path[i];
    if (is_escape) i += 2;
  }
  return out;
}

// Without a key, requests of foreign pages and to foreign names reach nothing that is not open.
void check_page(const HttpRequest& request, bool is_loopback) {
  const std::string* host = request.find_header("host");
  if (is_loopback && host != nullptr) {
    const std::string name = lower(host->substr(0, host->find(':')));
    const bool is_number = name.find_first_not_of("0123456789.") == std::string::npos;
    HALLEY_CHECK(name == "localhost" || name == "localhost." ||
                     (is_number && name.starts_with("127.")) || host->starts_with("["),
                 *host);
  }
  const std::string* origin = request.find_header("origin");
  if (origin == nullptr || *origin == "https://a.example") return;
  HALLEY_CHECK(origin->starts_with("http://") || origin->starts_with("https://"), *origin);
  HALLEY_CHECK(host != nullptr, *origin);
  std::string page = lower(origin->substr(origin->find("://") + 3));
  std::string server = lower(*host);
  for (std::string* side : {&page, &server}) {
    for (const char* port : {":80", ":443"}) {
      if (side->ends_with(port)) side->resize(side->size() - std::string_view(port).size());
    }
  }
  HALLEY_CHECK(page == server, *origin, *host);
}

// Cuts one line with its CRLF off the front.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find("\r\n");
  HALLEY_CHECK(end != std::string_view::npos);
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 2);
  return line;
}

std::vector<std::pair<std::string, std::string>> take_headers(std::string_view& text) {
  std::vector<std::pair<std::string, std::string>> headers;
  for (std::string_view line; !(line = take_line(text)).empty();) {
    for (const char c : line) HALLEY_CHECK(c == '\t' || static_cast<unsigned char>(c) >= ' ');
    if (line.front() == ' ' || line.front() == '\t') {  // an old way to go on in the next line
      HALLEY_CHECK(!headers.empty());
      std::string& value = headers.back().second;
      if (!trim(line).empty()) value += (value.empty() ? "" : " ") + std::string(trim(line));
      continue;
    }
    const size_t colon = line.find(':');
    HALLEY_CHECK(colon != std::string_view::npos && colon > 0);
    HALLEY_CHECK(line.find_first_of(" \t") > colon);
    headers.emplace_back(lower(line.substr(0, colon)), trim(line.substr(colon + 1)));
  }
  return headers;
}

std::string take_chunks(std::string_view& text) {
  std::string body;
  for (;;) {
    const std::string line(take_line(text));
    HALLEY_CHECK(!line.empty() && std::isxdigit(static_cast<unsigned char>(line[0])), line);
    const size_t size = std::strtoull(line.c_str(), nullptr, 16);
    if (size == 0) break;
    HALLEY_CHECK(size + 2 <= text.size() && text.substr(size, 2) == "\r\n", size);
    body += text.substr(0, size);
    text.remove_prefix(size + 2);
  }
  take_headers(text);  // trailers
  return body;
}

struct Server {
  bool has_keys;
  bool is_loopback;
};

// `bytes` are all that was used for `request`, which reached `route`.
void check_request(std::string_view bytes, const HttpRequest& request, const HttpRoute& route,
                   const Server& server) {
  const HttpLimits limits = small_limits();
  if (bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  const std::string_view line = take_line(bytes);
  const bool is_1_0 = line.ends_with(" HTTP/1.0");
  HALLEY_CHECK(is_1_0 || line.ends_with(" HTTP/1.1"), line);
  HALLEY_CHECK(std::count(line.begin(), line.end(), ' ') == 2, line);
  const std::string_view method = line.substr(0, line.find(' '));
  std::string_view target = line.substr(method.size() + 1);
  target.remove_suffix(9);
  HALLEY_CHECK(target.size() <= limits.target_bytes_max, target);
  const std::string_view path = target.substr(0, target.find('?'));
  HALLEY_CHECK(path == route.path || (route.encoded_from == kNamesAt &&
                                      path.starts_with("/v1/x/") && decoded(path) == route.path),
               target);
  HALLEY_CHECK(method == route.method || (method == "HEAD" && route.method == "GET"), method);
  HALLEY_CHECK(request.method == method && request.path == path);

  const auto headers = take_headers(bytes);
  HALLEY_CHECK(headers == request.headers && headers.size() <= limits.num_headers_max);
  const auto count = [&](std::string_view name) {
    return std::count_if(headers.begin(), headers.end(),
                         [&](const auto& header) { return header.first == name; });
  };
  HALLEY_CHECK(count("host") == 1 || (is_1_0 && count("host") == 0));
  if (!server.has_keys && !route.is_open) check_page(request, server.is_loopback);
  if (server.has_keys && !route.is_open) {
    HALLEY_CHECK(count("authorization") == 1);
    const std::string& value = *request.find_header("authorization");
    HALLEY_CHECK(lower(value).starts_with("bearer ") && trim(value.substr(7)) == kKey, value);
  }
  HALLEY_CHECK(count("content-length") + count("transfer-encoding") <= 1);
  std::string body;
  if (const std::string* length = request.find_header("content-length")) {
    HALLEY_CHECK(!length->empty() && length->find_first_not_of("0123456789") == std::string::npos);
    body = bytes.substr(0, std::strtoull(length->c_str(), nullptr, 10));
    HALLEY_CHECK(body.size() == std::strtoull(length->c_str(), nullptr, 10));
    bytes.remove_prefix(body.size());
  } else if (count("transfer-encoding") == 1) {
    HALLEY_CHECK(!is_1_0 && lower(*request.find_header("transfer-encoding")) == "chunked");
    body = take_chunks(bytes);
  }
  HALLEY_CHECK(bytes.empty(), bytes.size());
  HALLEY_CHECK(body == request.body && body.size() <= limits.body_bytes_max, body.size());
}

struct Outcome {
  std::vector<std::string> bodies;  // of what reached routes, with the path
  std::string rejection;            // the body of the answer behind which the connection is closed
};

// Gives all bytes at once where `seed` is 0, else in pieces of pseudo-random sizes.
Outcome run(std::string_view bytes, const Server& server, unsigned seed) {
  const HttpLimits limits = small_limits();
  halley::AccessRules rules = {
      .keys = halley::ApiKeys(server.has_keys ? std::vector<std::string>{std::string(kKey)}
                                              : std::vector<std::string>{}),
      .browsers = halley::BrowserRules({.host = "127.0.0.1",
                                        .allowed_hosts = {},
                                        .allowed_origins = {"https://a.example"},
                                        .has_keys = server.has_keys})};
  rules.browsers.set_is_loopback(server.is_loopback);
  const halley::GateSlot gates(std::make_unique<halley::RequestGate>(make_routes(), rules));
  const auto budget = std::make_shared<halley::ByteBudget>(limits.all_bodies_bytes_max);
  RequestIntake intake(limits, gates, budget);
  Outcome outcome;
  size_t request_begin = 0;
  size_t num_parsed = 0;
  size_t num_arrived = 0;
  while (num_arrived < bytes.size()) {
    seed = seed * 1103515245U + 12345U;
    const bool is_whole = seed == 12345U && num_arrived == 0;
    num_arrived = is_whole ? bytes.size()
                           : std::min<size_t>(bytes.size(), num_arrived + 1 + seed / 65536 % 9);
    for (bool goes_on = true; goes_on;) {
      size_t num_used = 0;
      const auto step = intake.step(bytes.substr(num_parsed, num_arrived - num_parsed), num_used);
      num_parsed += num_used;
      HALLEY_CHECK(num_parsed <= num_arrived);
      if (step == RequestIntake::Step::kNeedMore) {
        // The bytes that are kept until more come are limited by the headers' size alone.
        HALLEY_CHECK(num_arrived - num_parsed <= limits.header_bytes_max, num_arrived - num_parsed);
        goes_on = false;
      } else if (step == RequestIntake::Step::kRequest) {
        check_request(bytes.substr(request_begin, num_parsed - request_begin), intake.request(),
                      *intake.route(), server);
        outcome.bodies.push_back(intake.request().path + " " + intake.request().body);
      } else if (step == RequestIntake::Step::kAnswer) {
        const std::string method = intake.request().method;
        const halley::HttpResponse answer = intake.take_answer();
        HALLEY_CHECK(answer.status >= 400 || (answer.status == 204 && method == "OPTIONS"));
        if (intake.must_close()) {
          outcome.rejection = answer.body;
          return outcome;
        }
      }
      if (step == RequestIntake::Step::kRequest || step == RequestIntake::Step::kAnswer) {
        intake.reset();
        request_begin = num_parsed;
      }
    }
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const Server server = {.has_keys = (data[0] & 1) != 0, .is_loopback = (data[0] & 2) != 0};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = run(bytes, server, 0);
  const Outcome pieces = run(bytes, server, 1U + data[0] / 2U);
  const size_t num = std::min(whole.bodies.size(), pieces.bodies.size());
  for (size_t i = 0; i < num; ++i) HALLEY_CHECK(whole.bodies[i] == pieces.bodies[i], i);
  // A chunk's line or trailers that arrive in pieces have to be kept, and may then be too long.
  const bool is_limit = pieces.rejection.find("bad_chunk") != std::string::npos;
  HALLEY_CHECK(pieces.bodies.size() == num && (whole.bodies.size() == num || is_limit),
               whole.bodies.size(), pieces.bodies.size(), whole.rejection, pieces.rejection);
  // The other way round, pieces may still wait for the end of a line that is wrong already.
  HALLEY_CHECK(pieces.rejection.empty() || is_limit || !whole.rejection.empty(), pieces.rejection);
  return 0;
}
