// The pages of the KV cache: which are free, how many page tables refer to the others, and which
// hold tokens that another sequence may reuse. (vLLM: the block pool.)
//
// A page is in exactly one state:
//   free        no page table refers to it, and its contents are useless;
//   cached      no page table refers to it, and PrefixCache finds it by its tokens;
//   referenced  n >= 1 page tables refer to it. A page in several tables is full, read-only and in
//               PrefixCache.
// A new page is a free one, else the least recently used cached one is evicted.
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
  /// The cached pages among the free ones.
  int64_t num_cached() const { return static_cast<int64_t>(cached_pages_.size()); }
  int64_t num_references(int32_t page) const { return num_references_[static_cast<size_t>(page)]; }

  /// Appends `count` pages of undefined contents to `page_table`, or changes nothing and returns
  /// false.
  [[nodiscard]] bool try_take(int64_t count, std::vector<int32_t>& page_table);

  /// Drops the references of all pages of `page_table` and empties it.
  void give_back(std::vector<int32_t>& page_table);

  /// Appends the page that holds these tokens to `page_table`, or returns false.
  [[nodiscard]] bool try_share(const PrefixKey& key, std::vector<int32_t>& page_table);

  /// Adds `page`, which is full, holds `key` and is in one page table, to the prefix cache. Returns
  /// the page to refer to from now on: if another page has the same key already, that one takes the
  /// reference and `page` becomes free.
  [[nodiscard]] int32_t keep(int32_t page, const PrefixKey& key);

  const PrefixCache& prefixes() const { return prefixes_; }

 private:
  int32_t take_one();
  void give_back_one(int32_t page);
  void refer(int32_t page);

  std::vector<int64_t> num_references_;
  std::vector<int32_t> free_pages_;  // a stack: the page used last is warm in the CPU's caches
  std::list<int32_t> cached_pages_;  // least recently used first
  std::vector<std::list<int32_t>::iterator> cached_positions_;  // by page; valid while cached
  PrefixCache prefixes_;
};

}  // namespace halley
