// Which pages of the KV cache are free.
#pragma once

#include <cstdint>
#include <vector>

namespace halley {

/// Hands out page numbers 0 to num_pages - 1. Not thread-safe: the engine's thread owns it.
class PageAllocator {
 public:
  explicit PageAllocator(int64_t num_pages);

  int64_t num_pages() const { return static_cast<int64_t>(is_taken_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_pages_.size()); }

  /// Appends `count` free pages to `page_table`, or changes nothing and returns false.
  [[nodiscard]] bool try_take(int64_t count, std::vector<int32_t>& page_table);
  /// Gives all pages of `page_table` back and empties it.
  void give_back(std::vector<int32_t>& page_table);

 private:
  std::vector<int32_t> free_pages_;  // a stack: what was used last is warm in the caches
  std::vector<bool> is_taken_;       // to notice a page that is given back twice
};

}  // namespace halley
