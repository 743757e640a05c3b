// A URL of an HTTP server: "http://127.0.0.1:8000/v1".
#pragma once

#include <string>
#include <string_view>

namespace halley {

struct HttpUrl {
  std::string host;  // a name or an address; IPv6 without its brackets
  std::string port = "80";
  std::string path;  // "" or "/..." without a slash at the end

  /// The value of the Host header.
  std::string authority() const;
};

/// Throws InputError for text that is no http:// URL or has credentials, a query or a fragment, and
/// UnsupportedError for https://.
HttpUrl parse_http_url(std::string_view text);

}  // namespace halley
