#include "halley/server/page/page_routes.h"

#include <string>
#include <string_view>

#include "halley/server/page/page_files.h"

namespace halley {
namespace {

// Forbids foreign sources, inline code and frames: a model's text stays text even if the page had a
// bug.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'";

const char* content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  return "image/svg+xml";
}

HttpResponse response_of(const PageFile& file) {
  return {.status = 200,
          .content_type = content_type_of(file.name),
          .body = file.content(),
          .headers = {{"content-security-policy", kPolicy},
                      {"x-content-type-options", "nosniff"},
                      {"referrer-policy", "no-referrer"},
                      {"cross-origin-opener-policy", "same-origin"},
                      {"cache-control", "no-cache"}}};
}

// "/" and "/docs" are pages; what they load has its file's name.
std::string path_of(std::string_view name) {
  if (name == "index.html") return "/";
  if (name.ends_with(".html")) name.remove_suffix(std::string_view(".html").size());
  return "/" + std::string(name);
}

}  // namespace

std::vector<HttpRoute> page_routes() {
  std::vector<HttpRoute> routes;
  for (const PageFile& file : page_files()) {
    routes.push_back({.method = "GET",
                      .path = path_of(file.name),
                      .handler =
                          [&file](const std::shared_ptr<HttpExchange>& exchange) {
                            exchange->respond(response_of(file));
                          },
                      .is_open = true});
  }
  return routes;
}

}  // namespace halley
