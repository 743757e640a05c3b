#include "halley/engine/prefix_cache.h"

#include <algorithm>
#include <random>

#include "halley/base/check.h"
#include "halley/core/philox.h"

namespace halley {

PrefixCache::PrefixCache(int64_t num_pages, uint64_t hash_mask)
    : entries_(static_cast<size_t>(num_pages)), hash_mask_(hash_mask) {
  std::random_device device;
  secret_ = uint64_t{device()} << 32 | device();
}

uint64_t PrefixCache::hash_of(const PrefixKey& key) const {
  uint64_t hash = random_bits(secret_, key.parent);
  for (const int32_t token : key.tokens) hash = random_bits(hash, static_cast<uint64_t>(token));
  if (key.parent == 0) {
    hash = random_bits(hash, key.salt.size());
    for (const char byte : key.salt) hash = random_bits(hash, static_cast<unsigned char>(byte));
  }
  return hash & hash_mask_;
}

std::optional<int32_t> PrefixCache::find(const PrefixKey& key) const {
  const auto [begin, end] = pages_by_hash_.equal_range(hash_of(key));
  for (auto it = begin; it != end; ++it) {
    const Entry& found = entry(it->second);
    if (found.parent == key.parent && std::ranges::equal(found.tokens, key.tokens) &&
        (key.parent != 0 || found.salt == key.salt)) {
      return it->second;
    }
  }
  return std::nullopt;
}

void PrefixCache::insert(int32_t page, const PrefixKey& key) {
  HALLEY_CHECK(!contains(page), page);
  Entry& added = entries_[static_cast<size_t>(page)];
  added = {.number = next_number_++,
           .hash = hash_of(key),
           .parent = key.parent,
           .salt = std::string(key.parent == 0 ? key.salt : std::string_view()),
           .tokens = {key.tokens.begin(), key.tokens.end()}};
  pages_by_hash_.emplace(added.hash, page);
}

void PrefixCache::erase(int32_t page) {
  HALLEY_CHECK(contains(page), page);
  Entry& erased = entries_[static_cast<size_t>(page)];
  const auto [begin, end] = pages_by_hash_.equal_range(erased.hash);
  const auto it = std::find_if(begin, end, [&](const auto& pair) { return pair.second == page; });
  HALLEY_CHECK(it != end, page);
  pages_by_hash_.erase(it);
  erased = {};
}

}  // namespace halley
