#include "halley/client/http/http_url.h"

#include <algorithm>
#include <charconv>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr size_t kUrlBytesMax = 2048;

[[noreturn]] void fail(std::string_view text, const char* what) {
  throw InputError(
      str("URL ", quote(text), ": ", what, ". Use a form like http://127.0.0.1:8000."));
}

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

bool is_address_char(char c) {
  return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9') || c == '.' ||
         c == ':';
}

bool is_port(std::string_view text) {
  uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end && number >= 1 && number <= 65535;
}

// The part between "http://" and the path.
void read_authority(std::string_view text, std::string_view authority, HttpUrl& url) {
  std::string_view behind;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) fail(text, "expected ']' behind an IPv6 address, got none");
    url.host = authority.substr(1, end - 1);
    behind = authority.substr(end + 1);
    if (!std::all_of(url.host.begin(), url.host.end(), is_address_char)) {
      fail(text, "expected an IPv6 address between brackets, got something else");
    }
  } else {
    const size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    if (colon != std::string_view::npos) behind = authority.substr(colon);
    if (!std::all_of(url.host.begin(), url.host.end(), is_host_char)) {
      fail(text, "expected a host name or address, got other characters");
    }
  }
  if (url.host.empty()) fail(text, "expected a host, got none");
  if (behind.empty()) return;
  if (behind[0] != ':' || !is_port(behind.substr(1))) {
    fail(text, "expected a port from 1 to 65535 behind the host, got something else");
  }
  url.port = behind.substr(1);
}

}  // namespace

std::string HttpUrl::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == "80" ? name : name + ":" + port;
}

HttpUrl parse_http_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.size() > kUrlBytesMax) fail(text, "expected at most 2048 bytes, got more");
  if (text.starts_with("https://")) {
    throw UnsupportedError(str("URL ", quote(text),
                               ": expected http://, got https://, which this "
                               "client does not speak. Use the server's own address, behind the "
                               "proxy that has the certificate."));
  }
  if (!text.starts_with(kScheme)) fail(text, "expected http:// at its beginning, got none");
  for (const char c : text) {
    if (c <= ' ' || c > '~') fail(text, "expected printable ASCII without spaces, got other bytes");
    if (c == '?' || c == '#' || c == '@') {
      fail(text, "expected no credentials, query or fragment, got '@', '?' or '#'");
    }
  }
  const std::string_view rest = text.substr(kScheme.size());
  const size_t slash = rest.find('/');
  HttpUrl url;
  read_authority(text, rest.substr(0, slash), url);
  if (slash != std::string_view::npos) url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  return url;
}

}  // namespace halley
