#include "halley/server/http/browser_rules.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/http_error.h"
#include "halley/server/http/request_head.h"

namespace halley {
namespace {

// Some 20 headers are what OpenAI's client in a browser asks for.
constexpr size_t kAskedHeadersBytesMax = 2048;
constexpr std::string_view kDefaultHeaders = "authorization, content-type, x-request-id";

struct HostAndPort {
  std::string_view name;  // "a.example", "127.0.0.1", "[::1]"; empty: not well-formed
  std::string_view port;  // empty: none
};

HostAndPort split_host(std::string_view host) {
  const size_t name_end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  if (name_end == std::string_view::npos) return {host, {}};
  if (name_end == 0 || name_end == host.size()) return {host.substr(0, name_end), {}};
  const std::string_view port = host.substr(name_end + 1);
  const bool is_number = !port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string_view::npos;
  if (host[name_end] != ':' || !is_number) return {};
  return {host.substr(0, name_end), port};
}

void check_origins(std::vector<std::string>& origins) {
  for (std::string& origin : origins) {
    const bool is_printable =
        std::all_of(origin.begin(), origin.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    const size_t scheme_end = origin.find("://");
    const bool has_scheme = scheme_end != std::string::npos && scheme_end > 0;
    const std::string_view host = std::string_view(origin).substr(has_scheme ? scheme_end + 3 : 0);
    const bool is_host =
        !split_host(host).name.empty() && host.find_first_of("/?#@") == std::string_view::npos;
    if (origin != "*" && !(is_printable && has_scheme && is_host)) {
      throw InputError(str("CORS origin ", quote(origin),
                           ": expected \"*\" or scheme and host, such as \"https://example.org\", "
                           "without a path. Change the option."));
    }
    origin = lower_case(origin);  // as browsers write it
  }
}

void check_hosts(std::vector<std::string>& hosts) {
  for (std::string& host : hosts) {
    const bool is_valid = !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             std::string_view("-._[]:").find(c) != std::string_view::npos;
    });
    if (host != "*" && (!is_valid || split_host(host).name.empty())) {
      throw InputError(str("allowed host ", quote(host),
                           ": expected \"*\" or a name or an address, such as \"llm.example.org\", "
                           "without a scheme or a path. Change --allowed-hosts."));
    }
    host = lower_case(host);
  }
}

// Names and addresses that lead to this machine whatever a foreign name server says.
bool is_loopback_name(std::string_view name) {
  if (name == "localhost" || name == "localhost.") return true;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  const std::string text(name);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, text.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// Whether a page of `origin` came from the host that its request names. A proxy in front may have
// added TLS, so that both schemes are the server's own.
bool is_own_page(std::string_view origin, std::string_view host) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kSchemes = {
      {{"http://", "80"}, {"https://", "443"}}};
  for (const auto& [scheme, default_port] : kSchemes) {
    if (!origin.starts_with(scheme)) continue;
    const HostAndPort page = split_host(origin.substr(scheme.size()));
    const HostAndPort server = split_host(host);
    const auto port_of = [&, port = default_port](const HostAndPort& side) {
      return side.port.empty() ? port : side.port;
    };
    return !page.name.empty() && lower_case(page.name) == lower_case(server.name) &&
           port_of(page) == port_of(server);
  }
  return false;
}

// Somebody follows a link to an answer, which the page with the link does not see.
bool is_followed_link(const HttpRequest& head) {
  const std::string* mode = head.find_header("sec-fetch-mode");
  const std::string* destination = head.find_header("sec-fetch-dest");
  return head.method != "POST" && mode != nullptr && *mode == "navigate" &&
         destination != nullptr && *destination == "document";
}

bool is_json(const HttpRequest& head) {
  const std::string* type = head.find_header("content-type");
  if (type == nullptr) return false;
  std::string_view essence = *type;
  essence = essence.substr(0, essence.find(';'));
  while (essence.ends_with(' ') || essence.ends_with('\t')) essence.remove_suffix(1);
  return lower_case(essence) == "application/json";
}

bool is_list_of_names(std::string_view list) {
  return !list.empty() && list.size() <= kAskedHeadersBytesMax &&
         std::all_of(list.begin(), list.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("-_., ").find(c) != std::string_view::npos;
         });
}

}  // namespace

BrowserRules::BrowserRules(BrowserRulesConfig config) : config_(std::move(config)) {
  check_origins(config_.allowed_origins);
  check_hosts(config_.allowed_hosts);
  config_.host = lower_case(config_.host);
}

const std::string* BrowserRules::find_allowed(std::string_view origin) const {
  const auto& allowed = config_.allowed_origins;
  const auto found = std::find_if(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return one == "*" || one == origin;
  });
  return found == allowed.end() ? nullptr : &*found;
}

// The port is not compared: it may be forwarded from another one, and a page at another port of
// this machine has an origin of its own.
bool BrowserRules::is_host_allowed(std::string_view host) const {
  const std::string lower = lower_case(host);
  const HostAndPort parts = split_host(lower);
  if (parts.name.empty()) return false;
  if (is_loopback_name(parts.name) || parts.name == config_.host) return true;
  return std::any_of(config_.allowed_hosts.begin(), config_.allowed_hosts.end(),
                     [&](const std::string& allowed) {
                       return allowed == "*" || allowed == lower || allowed == parts.name;
                     });
}

std::optional<HttpResponse> BrowserRules::reject_host(const HttpRequest& head) const {
  const bool is_checked = !config_.allowed_hosts.empty() || (is_loopback_ && !config_.has_keys);
  const std::string* host = head.find_header("host");
  // Every browser sends one; what speaks HTTP/1.0 without it is none.
  if (!is_checked || host == nullptr || is_host_allowed(*host)) return std::nullopt;
  return http_error(403,
                    str("Header host: expected localhost, a loopback address or a name of "
                        "--allowed-hosts, got ",
                        quote(*host), ". Name it there if a proxy uses it."),
                    "host_not_allowed");
}

std::optional<HttpResponse> BrowserRules::reject_page(const HttpRequest& head) const {
  if (config_.has_keys) return std::nullopt;
  const std::string* origin = head.find_header("origin");
  const std::string* site = head.find_header("sec-fetch-site");
  if (origin == nullptr && site == nullptr) return std::nullopt;
  if (origin != nullptr) {
    const std::string* host = head.find_header("host");
    if (find_allowed(*origin) == nullptr && (host == nullptr || !is_own_page(*origin, *host))) {
      return http_error(403,
                        str("Header origin: expected this server's own page or one of "
                            "--allowed-origins, got ",
                            quote(*origin), ". Name it there if its pages may use the server."),
                        "origin_not_allowed");
    }
  } else if (*site != "same-origin" && *site != "none" && !is_followed_link(head) &&
             find_allowed("") == nullptr) {
    return http_error(403,
                      "Header sec-fetch-site: expected this server's own page, got another page.",
                      "origin_not_allowed");
  }
  // Bodies of other types are those that a page can send to other sites without a preflight.
  if (head.method == "POST" && !is_json(head)) {
    return http_error(415, "Header content-type: expected application/json from a browser.",
                      "unsupported_media_type");
  }
  return std::nullopt;
}

HttpHeaders BrowserRules::cors_headers(const HttpRequest& head) const {
  const std::string* origin = head.find_header("origin");
  const std::string* allowed = origin == nullptr ? nullptr : find_allowed(*origin);
  if (allowed == nullptr) return {};
  HttpHeaders headers;
  headers.emplace_back("access-control-allow-origin", *allowed);
  headers.emplace_back("access-control-expose-headers",
                       "x-request-id, retry-after, x-halley-ignored");
  if (*allowed != "*") headers.emplace_back("vary", "origin");
  return headers;
}

HttpHeaders BrowserRules::preflight_headers(const HttpRequest& head,
                                            const std::string& methods) const {
  if (head.find_header("access-control-request-method") == nullptr) return {};
  if (cors_headers(head).empty()) return {};
  // Clients add headers of their own (x-stainless-os, openai-beta, ...), none of which matters
  // here: those that are asked for are allowed.
  const std::string* asked = head.find_header("access-control-request-headers");
  HttpHeaders headers;
  headers.emplace_back("access-control-allow-methods", methods);
  headers.emplace_back("access-control-allow-headers", asked != nullptr && is_list_of_names(*asked)
                                                           ? *asked
                                                           : std::string(kDefaultHeaders));
  headers.emplace_back("access-control-max-age", "600");
  // A page of the internet asks so before it may reach a private address.
  if (head.find_header("access-control-request-private-network") != nullptr) {
    headers.emplace_back("access-control-allow-private-network", "true");
  }
  return headers;
}

}  // namespace halley
