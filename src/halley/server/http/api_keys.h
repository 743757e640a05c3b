// API keys, compared in constant time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// The key of a header `Authorization: Bearer KEY` (RFC 6750); empty: another scheme, or no key.
std::string_view bearer_key(std::string_view header);
/// The key that a request sends: `Authorization: Bearer KEY`, or `x-api-key: KEY`, as clients of
/// Anthropic's API do; empty: none.
std::string_view key_of(const HttpRequest& request);

/// Immutable; any thread.
class ApiKeys {
 public:
  /// Throws InputError for a key that is empty, longer than 512 bytes, or has other
  /// characters than printable ASCII without spaces, since no header could carry it.
  explicit ApiKeys(std::vector<std::string> keys);

  bool empty() const { return keys_.empty(); }

  /// Whether `given` is one of the keys. The time depends only on the number of keys.
  bool accepts(std::string_view given) const;

 private:
  std::vector<std::string> keys_;  // padded with zeros to one length
};

}  // namespace halley
