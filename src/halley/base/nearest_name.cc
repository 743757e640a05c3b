#include "halley/base/nearest_name.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace halley {
namespace {

constexpr size_t kNameBytesMax = 64;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The restricted Damerau-Levenshtein distance. Both have at most kNameBytesMax bytes.
size_t num_edits(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table: the distances of a's first i bytes to b's first j.
  std::array<std::array<size_t, kNameBytesMax + 1>, 3> rows{};
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    const auto& before = rows[(i + 1) % 3];  // i - 2
    const auto& last = rows[(i - 1) % 3];
    auto& row = rows[i % 3];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t cost = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost});
      const bool is_swap = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (is_swap) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() < 2 || name.size() > kNameBytesMax) return {};
  std::string_view nearest;
  size_t num_edits_min = std::max<size_t>(1, name.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    if (candidate.size() > kNameBytesMax) continue;
    const size_t n = num_edits(name, candidate);
    if (n >= num_edits_min) continue;
    num_edits_min = n;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace halley
