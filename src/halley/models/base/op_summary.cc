#include "halley/models/base/op_summary.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace halley {

std::string op_name_without_layer(const std::string& name) {
  constexpr const char* kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return name;
  const size_t number = std::char_traits<char>::length(kPrefix);
  const size_t end = name.find_first_not_of("0123456789", number);
  const bool is_numbered = end != std::string::npos && end > number && name[end] == '.';
  return is_numbered ? name.substr(end + 1) : name;
}

std::vector<OpTotal> summarize_ops(std::span<const OpTime> times) {
  std::vector<OpTotal> totals;
  std::map<std::string, size_t> indices;
  double sum = 0;
  for (const OpTime& time : times) {
    const std::string name = op_name_without_layer(time.name);
    const auto [entry, is_new] = indices.emplace(name, totals.size());
    if (is_new) totals.push_back({.name = name});
    OpTotal& total = totals[entry->second];
    ++total.count;
    total.total_us += time.duration_us;
    sum += time.duration_us;
  }
  for (OpTotal& total : totals) total.share = sum > 0 ? total.total_us / sum : 0;
  std::stable_sort(totals.begin(), totals.end(),
                   [](const OpTotal& a, const OpTotal& b) { return a.total_us > b.total_us; });
  return totals;
}

}  // namespace halley
