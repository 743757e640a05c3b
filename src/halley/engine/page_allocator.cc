#include "halley/engine/page_allocator.h"

#include <limits>

#include "halley/base/check.h"

namespace halley {

PageAllocator::PageAllocator(int64_t num_pages) {
  HALLEY_CHECK(num_pages >= 0 && num_pages <= std::numeric_limits<int32_t>::max(), num_pages);
  is_taken_.assign(static_cast<size_t>(num_pages), false);
  free_pages_.reserve(static_cast<size_t>(num_pages));
  // Low numbers first, so that memory is touched from its beginning.
  for (int64_t page = num_pages; page > 0; --page) {
    free_pages_.push_back(static_cast<int32_t>(page - 1));
  }
}

bool PageAllocator::try_take(int64_t count, std::vector<int32_t>& page_table) {
  if (count > num_free()) return false;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t page = free_pages_.back();
    free_pages_.pop_back();
    is_taken_[static_cast<size_t>(page)] = true;
    page_table.push_back(page);
  }
  return true;
}

void PageAllocator::give_back(std::vector<int32_t>& page_table) {
  // Backwards, so that the same sequence would get the same pages in the same order again.
  for (size_t i = page_table.size(); i > 0; --i) {
    const int32_t page = page_table[i - 1];
    HALLEY_CHECK(is_taken_[static_cast<size_t>(page)], page);
    is_taken_[static_cast<size_t>(page)] = false;
    free_pages_.push_back(page);
  }
  page_table.clear();
}

}  // namespace halley
