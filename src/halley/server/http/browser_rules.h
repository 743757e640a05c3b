// Which hosts and web pages may use the server. A browser sends requests of any page to any
// address, this machine's own too. What a page cannot change are the headers Host, which has the
// name that the browser looked up, and Origin or Sec-Fetch-Site, which say whose page it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/server/http/http_exchange.h"

namespace halley {

struct BrowserRulesConfig {
  std::string host;                          // the one that the server listens at
  std::vector<std::string> allowed_hosts;    // "a.example", "a.example:8080", "*"
  std::vector<std::string> allowed_origins;  // "https://a.example", "*"
  bool has_keys = false;
};

/// Any thread, once set_is_loopback() was called.
class BrowserRules {
 public:
  /// Throws InputError for what is no host and no origin.
  explicit BrowserRules(BrowserRulesConfig config);

  /// Whether the server listens at an address that only this machine reaches. Without a key it then
  /// checks Host: a name of a foreign site that leads to this machine (DNS rebinding) makes the
  /// site's pages look like the server's own.
  void set_is_loopback(bool is_loopback) { is_loopback_ = is_loopback; }

  /// Null if the request's Host is the server's, or need not be.
  std::optional<HttpResponse> reject_host(const HttpRequest& head) const;
  /// Null if no browser sent the request, or for a page that may use the server. With keys it is
  /// null always: a page of another site has no key.
  std::optional<HttpResponse> reject_page(const HttpRequest& head) const;

  /// The CORS headers of any answer to this request; empty unless its origin is allowed.
  HttpHeaders cors_headers(const HttpRequest& head) const;
  /// The further ones of an answer to a preflight request: which methods and headers may follow.
  HttpHeaders preflight_headers(const HttpRequest& head, const std::string& methods) const;

 private:
  const std::string* find_allowed(std::string_view origin) const;
  bool is_host_allowed(std::string_view host) const;

  BrowserRulesConfig config_;
  bool is_loopback_ = false;
};

}  // namespace halley
