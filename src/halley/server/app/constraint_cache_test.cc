#include "halley/server/app/constraint_cache.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

class Sized final : public CompiledConstraint {
 public:
  explicit Sized(size_t num_bytes) : num_bytes_(num_bytes) {}
  std::unique_ptr<TokenConstraint> start() const override { return nullptr; }
  size_t num_bytes() const override { return num_bytes_; }

 private:
  size_t num_bytes_;
};

ConstraintCache::Compiled sized(size_t num_bytes) { return std::make_shared<Sized>(num_bytes); }

TEST(ConstraintCache, CompilesAKeyOnceWhoeverComesMeanwhile) {
  ConstraintCache cache(1000);
  Signal has_begun, may_end;
  std::atomic<int> num_compiled = 0;
  const auto get = [&] {
    return cache.get("a", [&] {
      ++num_compiled;
      has_begun.set();
      may_end.wait();
      return sized(1);
    });
  };
  std::vector<std::future<ConstraintCache::Compiled>> all;
  all.push_back(std::async(std::launch::async, get));
  has_begun.wait();
  EXPECT_EQ(cache.find("a"), nullptr);
  for (int i = 0; i < 3; ++i) all.push_back(std::async(std::launch::async, get));
  EXPECT_NE(cache.get("b", [] { return sized(1); }), nullptr) << "others do not wait";
  may_end.set();
  const ConstraintCache::Compiled first = all[0].get();
  for (size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all[i].get(), first);
  EXPECT_EQ(cache.find("a"), first);
  EXPECT_EQ(num_compiled, 1);
}

TEST(ConstraintCache, KeepsNothingOfAFailure) {
  ConstraintCache cache(1000);
  Signal has_begun, may_end;
  const auto fail = [&]() -> ConstraintCache::Compiled {
    has_begun.set();
    may_end.wait();
    throw InputError("bad");
  };
  auto first = std::async(std::launch::async, [&] { return cache.get("a", fail); });
  has_begun.wait();
  auto second = std::async(std::launch::async, [&] { return cache.get("a", fail); });
  may_end.set();
  EXPECT_THROW(first.get(), InputError);
  EXPECT_THROW(second.get(), InputError);
  EXPECT_EQ(cache.num_entries(), 0u);
  EXPECT_NE(cache.get("a", [] { return sized(1); }), nullptr);
}

TEST(ConstraintCache, DropsWhatWasNotUsedForTheLongestTime) {
  ConstraintCache cache(100);
  for (const char* key : {"a", "b", "c", "d"}) cache.get(key, [] { return sized(30); });
  EXPECT_NE(cache.find("a"), nullptr);
  cache.get("e", [] { return sized(1); });  // itself in use at the moment
  EXPECT_EQ(cache.find("b"), nullptr);
  for (const char* key : {"a", "c", "d", "e"}) EXPECT_NE(cache.find(key), nullptr) << key;
  cache.drop_unused();
  EXPECT_EQ(cache.num_entries(), 0u);
}

TEST(ConstraintCache, KeepsWhatSomebodyUses) {
  ConstraintCache cache(100);
  auto large = cache.get("a", [] { return sized(1000); });
  for (const char* key : {"b", "c", "d"}) cache.get(key, [] { return sized(30); });
  cache.get("e", [] { return sized(1); });
  EXPECT_EQ(cache.find("a"), large);
  EXPECT_EQ(cache.num_entries(), 5u) << "it does not count";
  cache.drop_unused();
  EXPECT_EQ(cache.num_entries(), 1u);
  large.reset();
  cache.get("f", [] { return sized(1); });
  EXPECT_EQ(cache.find("a"), nullptr) << "it is larger than the bound";
}

}  // namespace
}  // namespace halley
