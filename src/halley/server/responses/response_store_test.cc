#include "halley/server/responses/response_store.h"

#include <string>

#include <gtest/gtest.h>

namespace halley {
namespace {

TEST(ResponseStore, GivesAClientItsOwnResponses) {
  ResponseStore store({.num_responses_max = 4, .bytes_max = 10'000});
  store.put("alice", "resp_1", {"{}", "[]"});
  EXPECT_EQ(store.find("alice", "resp_1")->json, "{}");
  EXPECT_FALSE(store.find("bob", "resp_1"));
  EXPECT_FALSE(store.erase("bob", "resp_1"));
  EXPECT_TRUE(store.erase("alice", "resp_1"));
  EXPECT_FALSE(store.find("alice", "resp_1"));
}

TEST(ResponseStore, ThoseThatWereNotUsedForLongestGiveWay) {
  ResponseStore store({.num_responses_max = 2, .bytes_max = 10'000});
  store.put("a", "1", {"{}", "[]"});
  store.put("a", "2", {"{}", "[]"});
  EXPECT_TRUE(store.find("a", "1"));
  store.put("a", "3", {"{}", "[]"});
  EXPECT_TRUE(store.find("a", "1"));
  EXPECT_FALSE(store.find("a", "2"));
  EXPECT_TRUE(store.find("a", "3"));
}

TEST(ResponseStore, KeepsNoMoreBytesThanItMay) {
  ResponseStore store({.num_responses_max = 100, .bytes_max = 10'000});
  store.put("a", "big", {std::string(20'000, 'x'), "[]"});
  EXPECT_FALSE(store.find("a", "big"));
  for (const char* id : {"1", "2", "3"}) store.put("a", id, {std::string(4'000, 'x'), "[]"});
  EXPECT_FALSE(store.find("a", "1"));
  EXPECT_TRUE(store.find("a", "2"));
  EXPECT_TRUE(store.find("a", "3"));
}

TEST(ResponseStore, IsOffByDefault) { EXPECT_FALSE(ResponseStore({}).is_enabled()); }

}  // namespace
}  // namespace halley
