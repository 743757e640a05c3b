// The pages of the KV cache: which are free, who refers to the others, and which hold tokens that
// another sequence may use again.
//
// A page is in exactly one state:
//   free        nobody refers to it, and nothing in it is of use;
//   cached      nobody refers to it, and it can be found by its tokens (PrefixCache);
//   referenced  by n >= 1 page tables. A page that can be found by its tokens may be in several; it
//               is full and only read. One that cannot is in one.
// A page that is needed is a free one; where there is none, the cached one that was given back the
// longest ago.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "halley/engine/prefix_cache.h"

namespace halley {

/// Hands out page numbers 0 to num_pages - 1. Not thread-safe: the engine's thread owns it.
class PageAllocator {
 public:
  explicit PageAllocator(int64_t num_pages);

  int64_t num_pages() const { return static_cast<int64_t>(num_references_.size()); }
  /// Pages that try_take() can give: free and cached ones.
  int64_t num_free() const {
    return static_cast<int64_t>(free_pages_.size() + cached_pages_.size());
  }
  /// Of them the cached ones.
  int64_t num_cached() const { return static_cast<int64_t>(cached_pages_.size()); }
  int64_t num_references(int32_t page) const { return num_references_[static_cast<size_t>(page)]; }

  /// Appends `count` pages of undefined contents to `page_table`, or changes nothing and returns
  /// false.
  [[nodiscard]] bool try_take(int64_t count, std::vector<int32_t>& page_table);

  /// Drops the references of all pages of `page_table` and empties it.
  void give_back(std::vector<int32_t>& page_table);

  /// Appends the page that holds these tokens to `page_table`, or returns false.
  [[nodiscard]] bool try_share(const PrefixKey& key, std::vector<int32_t>& page_table);

  /// Says that `page`, which one page table has, is full and holds `key`, so that others may find
  /// it. Returns the page to refer to from now on: where another one holds the same already, this
  /// one takes the reference and `page` becomes free.
  [[nodiscard]] int32_t keep(int32_t page, const PrefixKey& key);

  const PrefixCache& prefixes() const { return prefixes_; }

 private:
  int32_t take_one();
  void give_back_one(int32_t page);
  void refer(int32_t page);

  std::vector<int64_t> num_references_;
  std::vector<int32_t> free_pages_;  // a stack: what was used last is warm in the caches
  std::list<int32_t> cached_pages_;  // the first to be used anew first
  std::vector<std::list<int32_t>::iterator> cached_places_;  // of each page; valid while cached
  PrefixCache prefixes_;
};

}  // namespace halley
