// One HTTP request at a time over libcurl, without redirects: who calls decides where to go.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace halley::hub {

struct HttpRequest {
  std::string url;
  std::string token = {};   // empty: no Authorization header
  bool is_head = false;     // asks for the headers alone
  uint64_t first_byte = 0;  // above 0: asks for the rest from there (Range)
};

struct HttpAnswer {
  int status = 0;                              // 0: no answer came
  std::map<std::string, std::string> headers;  // by lower-case names; of a repeated one the last
  std::string redirect_url;                    // absolute; empty: none
  std::string failure;                         // empty: the answer is whole
  bool was_cut = false;                        // the failure may pass: ask for the rest

  /// Empty where there is none of that lower-case name.
  std::string header(const std::string& name) const;
};

/// Takes a piece of the body of an answer whose status and headers are known. An exception ends the
/// transfer.
using BodySink = std::function<void(const HttpAnswer& answer, std::string_view bytes)>;

/// Connections stay open between requests. Certificates are verified with the machine's, or those
/// of the file that SSL_CERT_FILE names; proxies are those of libcurl's variables (https_proxy).
/// One thread at a time.
class HttpTransport {
 public:
  /// Opens libcurl. Throws DeviceError.
  HttpTransport();
  ~HttpTransport();
  HttpTransport(const HttpTransport&) = delete;
  HttpTransport& operator=(const HttpTransport&) = delete;

  /// An exception of `sink` is thrown on.
  HttpAnswer send(const HttpRequest& request, const BodySink& sink);

  /// "https://host:443" of an http or https URL without a user's name; empty for any other text.
  std::string origin_of(const std::string& url) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether an origin is this machine: 127.0.0.1, ::1 or localhost.
bool is_loopback_origin(const std::string& origin);

}  // namespace halley::hub
