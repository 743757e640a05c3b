#include "halley/engine/page_allocator.h"

#include <limits>

#include "halley/base/check.h"

namespace halley {
namespace {

size_t checked_size(int64_t num_pages) {
  HALLEY_CHECK(num_pages >= 0 && num_pages <= std::numeric_limits<int32_t>::max(), num_pages);
  return static_cast<size_t>(num_pages);
}

}  // namespace

PageAllocator::PageAllocator(int64_t num_pages)
    : num_references_(checked_size(num_pages)),
      cached_positions_(num_references_.size()),
      prefixes_(num_pages) {
  free_pages_.reserve(num_references_.size());
  // Low indices come first, so that memory is touched from its beginning.
  for (int64_t page = num_pages; page > 0; --page) {
    free_pages_.push_back(static_cast<int32_t>(page - 1));
  }
}

int32_t PageAllocator::take_one() {
  int32_t page = 0;
  if (!free_pages_.empty()) {
    page = free_pages_.back();
    free_pages_.pop_back();
  } else {
    page = cached_pages_.front();
    cached_pages_.pop_front();
    prefixes_.erase(page);
  }
  num_references_[static_cast<size_t>(page)] = 1;
  return page;
}

bool PageAllocator::try_take(int64_t count, std::vector<int32_t>& page_table) {
  if (count > num_free()) return false;
  for (int64_t i = 0; i < count; ++i) page_table.push_back(take_one());
  return true;
}

void PageAllocator::give_back_one(int32_t page) {
  int64_t& count = num_references_[static_cast<size_t>(page)];
  HALLEY_CHECK(count >= 1, page, count);
  if (--count > 0) return;
  if (!prefixes_.contains(page)) {
    free_pages_.push_back(page);
    return;
  }
  cached_positions_[static_cast<size_t>(page)] = cached_pages_.insert(cached_pages_.end(), page);
}

void PageAllocator::give_back(std::vector<int32_t>& page_table) {
  // Backwards, so that the pages after a page are evicted before it: without it they cannot be
  // found. The same sequence would also get the same free pages in the same order again.
  for (size_t i = page_table.size(); i > 0; --i) give_back_one(page_table[i - 1]);
  page_table.clear();
}

void PageAllocator::refer(int32_t page) {
  const auto i = static_cast<size_t>(page);
  if (num_references_[i]++ == 0) cached_pages_.erase(cached_positions_[i]);
}

bool PageAllocator::try_share(const PrefixKey& key, std::vector<int32_t>& page_table) {
  const std::optional<int32_t> page = prefixes_.find(key);
  if (!page) return false;
  refer(*page);
  page_table.push_back(*page);
  return true;
}

int32_t PageAllocator::keep(int32_t page, const PrefixKey& key) {
  HALLEY_CHECK(num_references(page) == 1, page, num_references(page));
  const std::optional<int32_t> other = prefixes_.find(key);
  if (!other) {
    prefixes_.insert(page, key);
    return page;
  }
  refer(*other);
  give_back_one(page);
  return *other;
}

}  // namespace halley
