#include "halley/server/app/work_queue.h"

#include <atomic>
#include <memory>

#include <gtest/gtest.h>

#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

TEST(WorkQueue, RejectsJobsBeyondItsBound) {
  Signal is_running, may_end;
  WorkQueue queue(1, 2);
  ASSERT_TRUE(queue.push([&] {
    is_running.set();
    may_end.wait();
  }));
  is_running.wait();
  EXPECT_TRUE(queue.push([] {}));
  EXPECT_TRUE(queue.push([] {}));
  EXPECT_FALSE(queue.push([] {}));
  may_end.set();
}

TEST(WorkQueue, RunsJobsInOrder) {
  std::vector<int> order;
  Signal is_done;
  WorkQueue queue(1, 100);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(queue.push([&, i] { order.push_back(i); }));
  }
  ASSERT_TRUE(queue.push([&] { is_done.set(); }));
  is_done.wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(WorkQueue, StopDropsWhatWaits) {
  const auto shared = std::make_shared<int>(0);
  Signal is_running, may_end;
  WorkQueue queue(1, 10);
  ASSERT_TRUE(queue.push([&] {
    is_running.set();
    may_end.wait();
  }));
  ASSERT_TRUE(queue.push([shared] { ++*shared; }));
  is_running.wait();
  EXPECT_EQ(shared.use_count(), 2);
  may_end.set();
  queue.stop();
  EXPECT_EQ(shared.use_count(), 1);
  EXPECT_FALSE(queue.push([] {}));
}

}  // namespace
}  // namespace halley
