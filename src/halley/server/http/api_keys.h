// The keys that a request may show, compared in a time that says nothing of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// Immutable; any thread.
class ApiKeys {
 public:
  /// Throws InputError for a key that is empty, longer than 512 bytes, or has anything but
  /// printable ASCII without spaces: no header could carry it as it is.
  explicit ApiKeys(std::vector<std::string> keys);

  bool empty() const { return keys_.empty(); }

  /// Whether `given` is one of the keys. The time depends on the number of keys alone.
  bool accepts(std::string_view given) const;

 private:
  std::vector<std::string> keys_;  // padded with zeros to one length
};

}  // namespace halley
