#include "halley/engine/page_allocator.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<int32_t> kAb = {1, 2}, kCd = {3, 4};

TEST(PageAllocator, TakesAllOrNothing) {
  PageAllocator pages(3);
  std::vector<int32_t> first, second;
  EXPECT_TRUE(pages.try_take(2, first));
  EXPECT_THAT(first, ElementsAre(0, 1));
  EXPECT_FALSE(pages.try_take(2, second));
  EXPECT_THAT(second, IsEmpty());
  EXPECT_TRUE(pages.try_take(1, first));
  EXPECT_THAT(first, ElementsAre(0, 1, 2));
  pages.give_back(first);
  EXPECT_THAT(first, IsEmpty());
  EXPECT_EQ(pages.num_free(), 3);
}

TEST(PageAllocatorDeathTest, EndsTheProcessOverAPageThatIsGivenBackTwice) {
  PageAllocator pages(2);
  std::vector<int32_t> table;
  ASSERT_TRUE(pages.try_take(1, table));
  std::vector<int32_t> copy = table;
  pages.give_back(table);
  EXPECT_DEATH(pages.give_back(copy), "count >= 1");
}

TEST(PageAllocator, SharesKeptPagesAndCountsWhoRefersToThem) {
  PageAllocator pages(3);
  std::vector<int32_t> first, second;
  ASSERT_TRUE(pages.try_take(1, first));
  const PrefixKey key = {.parent = 0, .salt = "", .tokens = kAb};
  EXPECT_FALSE(pages.try_share(key, second));
  EXPECT_EQ(pages.keep(first[0], key), first[0]);
  EXPECT_TRUE(pages.try_share(key, second));
  EXPECT_EQ(second, first);
  EXPECT_EQ(pages.num_references(first[0]), 2);
  const int32_t page = first[0];
  pages.give_back(first);
  EXPECT_EQ(pages.num_references(page), 1);
  EXPECT_EQ(pages.num_free(), 2);
  pages.give_back(second);
  EXPECT_EQ(pages.num_free(), 3);
  EXPECT_EQ(pages.num_cached(), 1);
  EXPECT_TRUE(pages.try_share(key, second));  // from the cached pages
  EXPECT_EQ(pages.num_cached(), 0);
}

TEST(PageAllocator, RefersToOnePageWhereTwoHoldTheSame) {
  PageAllocator pages(3);
  std::vector<int32_t> first, second;
  ASSERT_TRUE(pages.try_take(1, first));
  ASSERT_TRUE(pages.try_take(1, second));
  const PrefixKey key = {.parent = 0, .salt = "", .tokens = kAb};
  EXPECT_EQ(pages.keep(first[0], key), first[0]);
  EXPECT_EQ(pages.keep(second[0], key), first[0]);
  EXPECT_EQ(pages.num_references(first[0]), 2);
  EXPECT_EQ(pages.num_free(), 2);
}

TEST(PageAllocator, TakesFreePagesFirstAndThenEvictsTheLeastRecentlyUsed) {
  PageAllocator pages(4);
  std::vector<int32_t> first, second, third;
  ASSERT_TRUE(pages.try_take(2, first));  // 0, 1
  ASSERT_TRUE(pages.try_take(1, second));
  static_cast<void>(pages.keep(0, {.parent = 0, .salt = "", .tokens = kAb}));
  static_cast<void>(
      pages.keep(1, {.parent = pages.prefixes().number(0), .salt = "", .tokens = kCd}));
  static_cast<void>(pages.keep(2, {.parent = 0, .salt = "", .tokens = kCd}));
  pages.give_back(first);
  pages.give_back(second);
  ASSERT_TRUE(pages.try_take(4, third));
  EXPECT_THAT(third, ElementsAre(3, 1, 0, 2));  // a page is evicted after its successors
  EXPECT_EQ(pages.prefixes().num_entries(), 0);
}

TEST(PrefixCache, FindsAPageByItsTokensWhatIsBeforeItAndTheSaltHoweverHashesMeet) {
  for (const uint64_t hash_mask : {~uint64_t{0}, uint64_t{0}}) {
    PrefixCache cache(4, hash_mask);
    cache.insert(2, {.parent = 0, .salt = "a", .tokens = kAb});
    EXPECT_EQ(cache.find({.parent = 0, .salt = "a", .tokens = kAb}), 2);
    EXPECT_EQ(cache.find({.parent = 0, .salt = "a", .tokens = kCd}), std::nullopt);
    EXPECT_EQ(cache.find({.parent = 0, .salt = "b", .tokens = kAb}), std::nullopt);
    EXPECT_EQ(cache.find({.parent = 0, .salt = "", .tokens = kAb}), std::nullopt);
    const uint64_t parent = cache.number(2);
    EXPECT_EQ(cache.find({.parent = parent, .salt = "a", .tokens = kAb}), std::nullopt);
    cache.insert(3, {.parent = parent, .salt = "a", .tokens = kAb});
    EXPECT_EQ(cache.find({.parent = parent, .salt = "a", .tokens = kAb}), 3);
    cache.erase(2);
    EXPECT_EQ(cache.find({.parent = 0, .salt = "a", .tokens = kAb}), std::nullopt);
    EXPECT_EQ(cache.find({.parent = parent, .salt = "a", .tokens = kAb}), 3);
  }
}

TEST(PrefixCache, GivesAReusedPageAnotherNumber) {
  PrefixCache cache(2);
  cache.insert(0, {.parent = 0, .salt = "", .tokens = kAb});
  const uint64_t parent = cache.number(0);
  cache.insert(1, {.parent = parent, .salt = "", .tokens = kAb});
  cache.erase(0);
  cache.insert(0, {.parent = 0, .salt = "", .tokens = kCd});
  EXPECT_EQ(cache.find({.parent = cache.number(0), .salt = "", .tokens = kAb}), std::nullopt);
}

}  // namespace
}  // namespace halley
