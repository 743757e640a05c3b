// Which pages of the KV cache hold which tokens, so that a sequence that begins with the same
// tokens as an earlier one need not compute them again.
//
// A full page is known by the page before it and its own tokens; the first page of a sequence by
// the sequence's salt and its tokens. Both are compared exactly: a hash only says where to look. So
// no collision, made or found, can hand one request what another one wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace halley {

/// What a full page holds: its tokens behind those of the page `parent`.
struct PrefixKey {
  uint64_t parent = 0;              // number() of the page before it; 0: it is the first
  std::string_view salt;            // looked at in first pages alone
  std::span<const int32_t> tokens;  // as many as a page has
};

/// Not thread-safe.
class PrefixCache {
 public:
  /// `hash_mask`: bits of the hashes that are used; fewer are for tests of hashes that meet.
  explicit PrefixCache(int64_t num_pages, uint64_t hash_mask = ~uint64_t{0});

  /// The page that holds this.
  std::optional<int32_t> find(const PrefixKey& key) const;

  /// From now on `page` is found by `key`. Neither is in the cache yet.
  void insert(int32_t page, const PrefixKey& key);

  /// Forgets a page that is in the cache. Pages behind it are not found any more.
  void erase(int32_t page);

  bool contains(int32_t page) const { return entry(page).number != 0; }

  /// Of a page in the cache: unlike the page's index it is never used again for other tokens.
  uint64_t number(int32_t page) const { return entry(page).number; }

  /// The number of the page before a page in the cache; 0: it is a first one.
  uint64_t parent(int32_t page) const { return entry(page).parent; }

  int64_t num_entries() const { return static_cast<int64_t>(pages_by_hash_.size()); }

 private:
  struct Entry {
    uint64_t number = 0;  // 0: not in the cache
    uint64_t hash = 0;
    uint64_t parent = 0;
    std::string salt;
    std::vector<int32_t> tokens;
  };

  const Entry& entry(int32_t page) const { return entries_[static_cast<size_t>(page)]; }
  uint64_t hash_of(const PrefixKey& key) const;

  std::vector<Entry> entries_;  // of each page
  std::unordered_multimap<uint64_t, int32_t> pages_by_hash_;
  uint64_t hash_mask_;
  uint64_t secret_;  // so that nobody outside can choose tokens whose hashes meet
  uint64_t next_number_ = 1;
};

}  // namespace halley
