// libcurl, opened while the program runs: only downloads need it, the program starts on machines
// without it, and TLS and its certificates stay those of the machine, which get its security
// updates. An installed tree would otherwise carry libcurl, OpenSSL and 20 more libraries.
#pragma once

#include <string>
#include <vector>

#include <curl/curl.h>

namespace halley::hub {

/// The functions of curl.h that are used.
struct CurlApi {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
  decltype(&curl_url) url = nullptr;
  decltype(&curl_url_set) url_set = nullptr;
  decltype(&curl_url_get) url_get = nullptr;
  decltype(&curl_url_cleanup) url_cleanup = nullptr;
  decltype(&curl_free) free = nullptr;
};

/// Opens the first of `files` that is there, which stays open, and initializes it. Not while other
/// threads do. Throws DeviceError that says what is missing.
CurlApi open_curl(const std::vector<std::string>& files = {"libcurl.so.4", "libcurl-gnutls.so.4"});

}  // namespace halley::hub
