#include "halley/hub/http_transport.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <exception>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/hub/curl_library.h"

namespace halley::hub {
namespace {

constexpr long kConnectTimeoutS = 30;
// A transfer slower than this is cut and goes on where it was.
constexpr long kSpeedMinBytesPerS = 100, kSpeedMinPeriodS = 60;
constexpr size_t kHeadersMax = 200;

/// Callbacks of a transfer get this.
struct Transfer {
  const CurlApi& curl;
  CURL* handle;
  const BodySink& sink;
  HttpAnswer answer = {};
  std::exception_ptr error = nullptr;
};

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

size_t take_header(const char* data, size_t, size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) transfer.answer.headers.clear();  // behind a "100 Continue"
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  if (transfer.answer.headers.size() >= kHeadersMax) return 0;
  transfer.answer.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  return size;
}

size_t take_body(const char* data, size_t, size_t size, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  long status = 0;
  transfer.curl.easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
  transfer.answer.status = static_cast<int>(status);
  try {  // libcurl is C: no exception may pass through it
    transfer.sink(transfer.answer, {data, size});
    return size;
  } catch (...) {
    transfer.error = std::current_exception();
    return 0;
  }
}

/// Failures of a connection that worked, or of a server that may come back.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string HttpAnswer::header(const std::string& name) const {
  const auto it = headers.find(name);
  return it == headers.end() ? std::string() : it->second;
}

class HttpTransport::Impl {
 public:
  Impl() : curl_(open_curl()), handle_(curl_.easy_init()) {
    if (handle_ == nullptr) throw DeviceError("libcurl: cannot start. Is there enough memory?");
  }
  ~Impl() { curl_.easy_cleanup(handle_); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  HttpAnswer send(const HttpRequest& request, const BodySink& sink) {
    Transfer transfer = {.curl = curl_, .handle = handle_, .sink = sink};
    curl_.easy_reset(handle_);
    char failure[CURL_ERROR_SIZE] = "";
    curl_slist* headers = nullptr;
    if (!request.token.empty()) {
      headers = curl_.slist_append(nullptr, str("Authorization: Bearer ", request.token).c_str());
    }
    set_request(request, headers);
    set(CURLOPT_ERRORBUFFER, failure);
    set(CURLOPT_HEADERFUNCTION, &take_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, &take_body);
    set(CURLOPT_WRITEDATA, &transfer);
    const CURLcode code = curl_.easy_perform(handle_);
    curl_.slist_free_all(headers);
    if (transfer.error != nullptr) std::rethrow_exception(transfer.error);
    return finish(std::move(transfer.answer), code, failure);
  }

  std::string origin_of(const std::string& url) const {
    CURLU* parsed = curl_.url();
    const bool is_url = parsed != nullptr && curl_.url_set(parsed, CURLUPART_URL, url.c_str(),
                                                           CURLU_DISALLOW_USER) == CURLUE_OK;
    std::string origin;
    if (is_url) {
      const std::string scheme = lower(part_of(parsed, CURLUPART_SCHEME));
      if (scheme == "http" || scheme == "https") {
        origin = str(scheme, "://", lower(part_of(parsed, CURLUPART_HOST)), ":",
                     part_of(parsed, CURLUPART_PORT));
      }
    }
    curl_.url_cleanup(parsed);
    return origin;
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_.easy_setopt(handle_, option, value);
    HALLEY_CHECK(code == CURLE_OK, curl_.easy_strerror(code));
  }

  void set_request(const HttpRequest& request, curl_slist* headers) {
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_USERAGENT, "halley");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_NETRC, long{CURL_NETRC_IGNORED});  // the token is the only secret that is sent
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    if (const auto file = env_string("SSL_CERT_FILE")) set(CURLOPT_CAINFO, file->c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectTimeoutS);
    set(CURLOPT_LOW_SPEED_LIMIT, kSpeedMinBytesPerS);
    set(CURLOPT_LOW_SPEED_TIME, kSpeedMinPeriodS);
    if (request.is_head) set(CURLOPT_NOBODY, 1L);
    if (request.first_byte > 0) set(CURLOPT_RANGE, str(request.first_byte, "-").c_str());
  }

  HttpAnswer finish(HttpAnswer answer, CURLcode code, const char* failure) const {
    long status = 0;
    curl_.easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
    const char* redirect_url = nullptr;
    curl_.easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &redirect_url);
    if (redirect_url != nullptr) answer.redirect_url = redirect_url;
    if (code == CURLE_OK) return answer;
    answer.failure = *failure != '\0' ? failure : curl_.easy_strerror(code);
    answer.was_cut = may_pass(code);
    return answer;
  }

  std::string part_of(CURLU* url, CURLUPart part) const {
    char* text = nullptr;
    if (curl_.url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
    std::string result(text);
    curl_.free(text);
    return result;
  }

  CurlApi curl_;
  CURL* handle_;
};

HttpTransport::HttpTransport() : impl_(std::make_unique<Impl>()) {}
HttpTransport::~HttpTransport() = default;

HttpAnswer HttpTransport::send(const HttpRequest& request, const BodySink& sink) {
  return impl_->send(request, sink);
}

std::string HttpTransport::origin_of(const std::string& url) const { return impl_->origin_of(url); }

bool is_loopback_origin(const std::string& origin) {
  const size_t host = origin.find("://");
  if (host == std::string::npos) return false;
  const std::string rest = origin.substr(host + 3);
  return rest.starts_with("127.0.0.1:") || rest.starts_with("[::1]:") ||
         rest.starts_with("localhost:");
}

}  // namespace halley::hub
