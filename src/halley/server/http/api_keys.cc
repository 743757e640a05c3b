#include "halley/server/http/api_keys.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/request_head.h"

namespace halley {
namespace {

constexpr size_t kKeyBytesMax = 512;

// No early exit, and a result that the compiler cannot derive from a part of the bytes.
bool is_equal(const std::string& a, const std::string& b) {
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < kKeyBytesMax; ++i) {
    difference = static_cast<unsigned char>(
        difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return difference == 0;
}

}  // namespace

std::string_view bearer_key(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  if (lower_case(header.substr(0, kScheme.size())) != kScheme) return {};
  header.remove_prefix(kScheme.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

std::string_view key_of(const HttpRequest& request) {
  const std::string* authorization = request.find_header("authorization");
  const std::string_view bearer =
      authorization != nullptr ? bearer_key(*authorization) : std::string_view();
  if (!bearer.empty()) return bearer;
  const std::string* key = request.find_header("x-api-key");
  return key != nullptr ? std::string_view(*key) : std::string_view();
}

ApiKeys::ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    std::string& key = keys_[i];
    const bool is_printable =
        std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    if (key.empty() || key.size() > kKeyBytesMax || !is_printable) {
      // The key itself stays out of messages and logs.
      throw InputError(str("API key ", i + 1, ": expected 1 to ", kKeyBytesMax,
                           " printable ASCII characters without spaces, got ", key.size(), " bytes",
                           is_printable ? "" : " with others among them",
                           ". Check the file or option that it comes from."));
    }
    key.resize(kKeyBytesMax, '\0');
  }
}

bool ApiKeys::accepts(std::string_view given) const {
  // A zero byte would look like the padding; no header value has one.
  std::string padded(given.substr(0, kKeyBytesMax));
  const bool is_possible =
      given.size() <= kKeyBytesMax && given.find('\0') == std::string_view::npos && !given.empty();
  padded.resize(kKeyBytesMax, '\0');
  bool is_known = false;
  for (const std::string& key : keys_) is_known |= is_equal(key, padded);
  return is_known && is_possible;
}

}  // namespace halley
