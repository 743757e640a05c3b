// Finds pages of the KV cache by their tokens, so that a sequence with the same prefix as an
// earlier one need not compute it again.
//
// The key of a full page is the page before it and its own tokens; the key of a sequence's first
// page is the sequence's salt and its tokens. Keys are compared exactly, a hash only speeds up the
// search. So no hash collision, accidental or forged, can give one request the text of another.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace halley {

/// The key of a full page: its tokens, which follow those of the page `parent`.
struct PrefixKey {
  uint64_t parent = 0;              // number() of the page before it; 0: first page
  std::string_view salt;            // only for first pages
  std::span<const int32_t> tokens;  // as many as a page has
};

/// Not thread-safe.
class PrefixCache {
 public:
  /// `hash_mask` selects the bits of the hashes that are used; tests of collisions use fewer.
  explicit PrefixCache(int64_t num_pages, uint64_t hash_mask = ~uint64_t{0});

  /// The page with this key.
  std::optional<int32_t> find(const PrefixKey& key) const;

  /// Adds `page` with `key`. Neither may be in the cache yet.
  void insert(int32_t page, const PrefixKey& key);

  /// Removes a page that is in the cache. Its successors are not found any more.
  void erase(int32_t page);

  bool contains(int32_t page) const { return entry(page).number != 0; }

  /// A unique number of a page in the cache. Unlike the page's index it is never reused.
  uint64_t number(int32_t page) const { return entry(page).number; }

  /// The number() of the page before a page in the cache; 0: it is a first page.
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

  std::vector<Entry> entries_;  // by page
  std::unordered_multimap<uint64_t, int32_t> pages_by_hash_;
  uint64_t hash_mask_;
  uint64_t secret_;  // so that a client cannot choose tokens whose hashes collide
  uint64_t next_number_ = 1;
};

}  // namespace halley
