#include "halley/server/app/preprocessing_queue.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/engine/testing/engine_fixture.h"
#include "halley/server/app/http_answers.h"
#include "halley/server/app/preprocessing_threads.h"

namespace halley {
namespace {

using Lane = PreprocessingLane;

class Queue : public testing::Test {
 protected:
  void push(const std::string& client, const std::string& name, Lane lane = Lane::kShort) {
    ASSERT_TRUE(queue_.push(lane, client, [this, name] { ran_.push_back(name); }));
  }
  // Runs the next job of a lane that has one; returns its client.
  std::string take(Lane lane = Lane::kShort) {
    auto turn = queue_.wait_for_turn(lane);
    turn->job();
    return turn->client;
  }
  void run_one(Lane lane = Lane::kShort) { queue_.end_turn(lane, take(lane)); }

  PreprocessingQueue queue_{100};
  std::vector<std::string> ran_;
};

TEST_F(Queue, RunsTheJobsOfOneClientInOrder) {
  for (const char* name : {"1", "2", "3"}) push("a", name);
  for (int i = 0; i < 3; ++i) run_one();
  EXPECT_EQ(ran_, (std::vector<std::string>{"1", "2", "3"}));
}

TEST_F(Queue, ClientsGetTurns) {
  for (const char* name : {"a1", "a2", "a3"}) push("a", name);
  for (const char* name : {"b1", "b2"}) push("b", name);
  for (int i = 0; i < 5; ++i) run_one();
  EXPECT_EQ(ran_, (std::vector<std::string>{"a1", "b1", "a2", "b2", "a3"}));
}

TEST_F(Queue, OneJobOfAClientRunsAtATime) {
  push("a", "a1");
  push("a", "a2");
  push("b", "b1");
  EXPECT_EQ(take(), "a");
  EXPECT_EQ(take(), "b") << "a has a turn already";
  auto next = std::async(std::launch::async, [this] { return take(); });
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  queue_.end_turn(Lane::kShort, "a");
  EXPECT_EQ(next.get(), "a");
}

TEST_F(Queue, LanesDoNotWaitForEachOther) {
  push("a", "long", Lane::kLong);
  push("a", "short");
  EXPECT_EQ(take(Lane::kLong), "a");
  EXPECT_EQ(take(Lane::kShort), "a");
  EXPECT_EQ(ran_, (std::vector<std::string>{"long", "short"}));
}

TEST_F(Queue, RejectsJobsBeyondItsBound) {
  PreprocessingQueue queue(2);
  EXPECT_TRUE(queue.push(Lane::kShort, "a", [] {}));
  EXPECT_TRUE(queue.push(Lane::kLong, "b", [] {}));
  EXPECT_FALSE(queue.push(Lane::kShort, "c", [] {}));
  ASSERT_TRUE(queue.wait_for_turn(Lane::kShort));
  EXPECT_TRUE(queue.push(Lane::kShort, "c", [] {}));
}

TEST_F(Queue, StopDropsWhatWaits) {
  const auto shared = std::make_shared<int>(0);
  ASSERT_TRUE(queue_.push(Lane::kShort, "a", [shared] { ++*shared; }));
  EXPECT_EQ(shared.use_count(), 2);
  queue_.stop();
  EXPECT_EQ(shared.use_count(), 1);
  EXPECT_FALSE(queue_.push(Lane::kShort, "a", [] {}));
  EXPECT_FALSE(queue_.wait_for_turn(Lane::kShort));
}

std::string client_with(const std::string& authorization, bool has_api_keys,
                        const std::string& address = "127.0.0.1:50123") {
  HttpRequest request;
  request.client = address;
  if (!authorization.empty()) request.headers.emplace_back("authorization", authorization);
  AppConfig config;
  config.has_api_keys = has_api_keys;
  return client_of(config, request);
}

TEST(ClientOf, IsTheHolderOfAKeyHoweverItIsWritten) {
  EXPECT_EQ(client_with("Bearer one", true), client_with("bEARER   one", true, "[::1]:9"));
  EXPECT_NE(client_with("Bearer one", true), client_with("Bearer two", true));
}

TEST(ClientOf, IsTheAddressWhereThereAreNoKeys) {
  EXPECT_EQ(client_with("Bearer one", false), client_with("Bearer two", false, "127.0.0.1:9"));
  EXPECT_NE(client_with("", false), client_with("", false, "127.0.0.2:50123"));
  EXPECT_EQ(client_with("", false, "[::1]:50123"), "[::1]");
}

TEST(PreprocessingThreads, AShortJobRunsWhileLongOnesDo) {
  Signal may_end, is_done;
  std::atomic<int> num_long{0};
  PreprocessingThreads threads(2, 100);
  for (const char* client : {"a", "b", "c"}) {
    ASSERT_TRUE(threads.push(Lane::kLong, client, [&] {
      ++num_long;
      may_end.wait();
    }));
  }
  ASSERT_TRUE(threads.push(Lane::kShort, "a", [&] { is_done.set(); }));
  is_done.wait();
  EXPECT_LE(num_long, 1);
  may_end.set();
}

TEST(PreprocessingThreads, RunsAllJobsOfManyClients) {
  std::atomic<int> num_run{0};
  std::atomic<int> num_running{0};
  std::atomic<bool> have_overlapped{false};
  Signal is_done;
  constexpr int kJobs = 3000;
  PreprocessingThreads threads(8, kJobs);
  for (int i = 0; i < kJobs; ++i) {
    // All jobs of the one client must follow each other; the others' may overlap with them.
    const bool is_one = i % 2 == 0;
    ASSERT_TRUE(
        threads.push(Lane::kShort, is_one ? "one" : "client " + std::to_string(i), [&, is_one] {
          if (is_one && num_running++ != 0) have_overlapped = true;
          if (is_one) --num_running;
          if (++num_run == kJobs) is_done.set();
        }));
  }
  is_done.wait();
  EXPECT_FALSE(have_overlapped);
}

}  // namespace
}  // namespace halley
