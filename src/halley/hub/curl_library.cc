#include "halley/hub/curl_library.h"

#include <dlfcn.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::hub {
namespace {

[[noreturn]] void reject(const std::string& file, const std::string& reason) {
  throw DeviceError(str("libcurl: expected ", file,
                        " of version 7.62 or later for downloads: ", reason,
                        ". Install it (Debian: libcurl4 and ca-certificates), or download the "
                        "model elsewhere and give its folder."));
}

}  // namespace

CurlApi open_curl(const std::vector<std::string>& files) {
  void* handle = nullptr;
  std::string missing;
  for (const std::string& file : files) {
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    if (missing.empty()) missing = dlerror();
  }
  if (handle == nullptr) reject(files.front(), missing);
  const auto take = [&]<typename Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(handle, name));
    if (function == nullptr) reject(files.front(), str("it has no ", name));
  };
  CurlApi api;
  take("curl_global_init", api.global_init);
  take("curl_easy_init", api.easy_init);
  take("curl_easy_reset", api.easy_reset);
  take("curl_easy_setopt", api.easy_setopt);
  take("curl_easy_perform", api.easy_perform);
  take("curl_easy_getinfo", api.easy_getinfo);
  take("curl_easy_strerror", api.easy_strerror);
  take("curl_easy_cleanup", api.easy_cleanup);
  take("curl_slist_append", api.slist_append);
  take("curl_slist_free_all", api.slist_free_all);
  take("curl_url", api.url);
  take("curl_url_set", api.url_set);
  take("curl_url_get", api.url_get);
  take("curl_url_cleanup", api.url_cleanup);
  take("curl_free", api.free);
  if (api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    reject(files.front(), "it could not be initialized");
  }
  return api;
}

}  // namespace halley::hub
