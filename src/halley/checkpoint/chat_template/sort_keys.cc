#include "halley/checkpoint/chat_template/sort_keys.h"

#include <algorithm>
#include <numeric>

#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/text.h"

namespace halley::jinja {

std::vector<AttributePath> split_paths(Runtime& runtime, const Value& attribute) {
  constexpr size_t kPathsMax = 100;
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    paths.emplace_back(runtime, attribute);
    return paths;
  }
  std::string_view rest = attribute.text();
  while (paths.size() < kPathsMax) {
    const size_t end = std::min(rest.find(','), rest.size());
    paths.emplace_back(runtime, runtime.string(rest.substr(0, end)));
    if (end == rest.size()) return paths;
    rest.remove_prefix(end + 1);
  }
  fail("sort() expects at most ", kPathsMax, " attributes, got more");
}

Value sort_key(Runtime& runtime, const Value& value, bool ignores_case) {
  if (!ignores_case || !value.is_string()) return value;
  return runtime.string(to_lower(value.text()));
}

std::vector<size_t> sorted_order(Runtime& runtime, const std::vector<Value>& keys,
                                 bool is_descending) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return is_descending ? is_less(runtime, keys[b], keys[a]) : is_less(runtime, keys[a], keys[b]);
  });
  return order;
}

}  // namespace halley::jinja
