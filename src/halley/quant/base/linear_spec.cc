#include "halley/quant/base/linear_spec.h"

#include <algorithm>
#include <string_view>

#include "halley/base/str.h"

namespace halley {
namespace {

/// The length of the prefix that all names share.
size_t shared_prefix(const std::vector<LinearSpec::Part>& parts) {
  size_t length = parts[0].name.size();
  for (const LinearSpec::Part& part : parts) {
    const auto ends = std::mismatch(part.name.begin(), part.name.end(), parts[0].name.begin(),
                                    parts[0].name.end());
    length = std::min(length, static_cast<size_t>(ends.first - part.name.begin()));
  }
  return length;
}

/// The length of the suffix that all names share, not counting the first `prefix` bytes.
size_t shared_suffix(const std::vector<LinearSpec::Part>& parts, size_t prefix) {
  size_t length = parts[0].name.size() - prefix;
  for (const LinearSpec::Part& part : parts) {
    const auto ends = std::mismatch(part.name.rbegin(), part.name.rend(), parts[0].name.rbegin(),
                                    parts[0].name.rend());
    length = std::min(length, static_cast<size_t>(ends.first - part.name.rbegin()));
    length = std::min(length, part.name.size() - prefix);
  }
  return length;
}

}  // namespace

int64_t LinearSpec::out_features() const {
  int64_t total = 0;
  for (const Part& part : parts) total += part.out_features;
  return total;
}

std::string LinearSpec::display_name() const {
  if (parts.empty()) return {};
  const std::string_view first = parts[0].name;
  const std::string expert = parts[0].expert >= 0 ? str("[", parts[0].expert, "]") : "";
  const size_t prefix = shared_prefix(parts);
  const bool is_one_name =
      std::all_of(parts.begin(), parts.end(), [&](const Part& part) { return part.name == first; });
  if (is_one_name) return str(first, expert);
  const size_t suffix = shared_suffix(parts, prefix);
  std::string differing;
  for (const Part& part : parts) {
    if (&part != parts.data()) differing += ',';
    differing += part.name.substr(prefix, part.name.size() - prefix - suffix);
  }
  return str(first.substr(0, prefix), "{", differing, "}", first.substr(first.size() - suffix),
             expert);
}

}  // namespace halley
