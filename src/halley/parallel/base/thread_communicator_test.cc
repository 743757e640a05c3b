#include "halley/parallel/base/thread_communicator.h"

#include <atomic>
#include <functional>
#include <latch>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "halley/base/error.h"
#include "halley/parallel/base/testing/communicator_cases.h"

namespace halley {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

/// Each rank on a thread of its own.
void run_ranks(int num_ranks, milliseconds timeout,
               const std::function<void(Communicator&)>& body) {
  auto ranks = make_thread_communicators(num_ranks, timeout);
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

/// The text that the operation throws; empty if it throws nothing.
std::string error_of(const std::function<void()>& operation) {
  try {
    operation();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

class Threads : public testing::TestWithParam<std::tuple<CommunicatorCase, int>> {};

TEST_P(Threads, Case) {
  const auto& [test, num_ranks] = GetParam();
  run_ranks(num_ranks, Communicator::kDefaultTimeout, test.run);
}

INSTANTIATE_TEST_SUITE_P(All, Threads,
                         testing::Combine(testing::ValuesIn(communicator_cases().begin(),
                                                            communicator_cases().end()),
                                          testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "With" +
                                  std::to_string(std::get<1>(test.param)) + "Ranks";
                         });

// In the tests below rank 1 never comes.
constexpr milliseconds kShort(50);

/// Every operation in which rank 0 of two waits for rank 1.
struct WaitingCall {
  const char* name;
  void (*run)(Communicator& rank);
};

constexpr WaitingCall kWaitingCalls[] = {
    {"all_reduce_sum",
     [](Communicator& rank) {
       float one = 1;
       rank.all_reduce_sum({&one, 1, DType::kF32});
     }},
    {"all_reduce_max",
     [](Communicator& rank) {
       float one = 1;
       rank.all_reduce_max({&one, 1, DType::kF32});
     }},
    {"all_gather",
     [](Communicator& rank) {
       char own = 1, all[8];
       rank.all_gather(&own, 1, all);
     }},
    {"broadcast",
     [](Communicator& rank) {
       char data = 1;
       rank.broadcast(&data, 1, 0);
     }},
    {"broadcast",
     [](Communicator& rank) {
       char data = 1;
       rank.broadcast(&data, 1, 1);
     }},
    {"broadcast_idle",
     [](Communicator& rank) {
       char data = 1;
       rank.broadcast_idle(&data, 1, 0);
     }},
    {"send",
     [](Communicator& rank) {
       const char data = 1;
       rank.send(&data, 1, 1 - rank.rank());
     }},
    {"receive",
     [](Communicator& rank) {
       char data = 1;
       rank.receive(&data, 1, 1 - rank.rank());
     }},
    {"all_gather", [](Communicator& rank) { rank.split(0); }},
};

TEST(ThreadCommunicator, NamesTheRankThatDoesNotCome) {
  for (const WaitingCall& call : kWaitingCalls) {
    const auto ranks = make_thread_communicators(2, kShort);
    EXPECT_EQ(error_of([&] { call.run(*ranks[0]); }),
              std::string(call.name) +
                  " on rank 0 of 2: rank 1 did not take part within 0.05 s: it has died or hangs. "
                  "See what it wrote last, and start all ranks again.");
    // Too late: nobody goes on where the others have given up.
    EXPECT_THAT(error_of([&] { call.run(*ranks[1]); }), HasSubstr("rank 1 did not take part"));
  }
}

TEST(ThreadCommunicator, NamesAllRanksThatDoNotCome) {
  const auto ranks = make_thread_communicators(4, kShort);
  EXPECT_THAT(error_of([&] { kWaitingCalls[0].run(*ranks[2]); }),
              AllOf(HasSubstr("on rank 2 of 4: ranks 0, 1, 3 did not take part"),
                    HasSubstr("they have died or hang")));
}

TEST(ThreadCommunicator, QueuedWorkThatDoesNotEndIsAnError) {
  const auto ranks = make_thread_communicators(2, kShort);
  EXPECT_THAT(
      error_of([&] { ranks[0]->wait_until([] { return false; }); }),
      HasSubstr("queued work on rank 0 of 2: another rank did not take part within 0.05 s"));
  EXPECT_NE(error_of([&] { ranks[1]->check_async(); }), "");
}

TEST(ThreadCommunicator, AbortEndsEveryOperationOfOthers) {
  for (const WaitingCall& call : kWaitingCalls) {
    const auto ranks = make_thread_communicators(2);
    std::latch has_begun(1);
    std::string error;
    std::thread waiting([&] {
      has_begun.count_down();
      error = error_of([&] { call.run(*ranks[0]); });
    });
    has_begun.wait();
    ranks[1]->abort_all("rank 1: no memory");
    waiting.join();
    EXPECT_EQ(error, "rank 1: no memory") << call.name;
    ranks[0]->abort_all("a later reason");
    EXPECT_EQ(error_of([&] { ranks[1]->check_async(); }), "rank 1: no memory");
  }
}

TEST(ThreadCommunicator, IdleRanksWaitBeyondTheTimeoutAndUntilTheAbort) {
  constexpr int kNumRanks = 3;
  std::atomic<int> num_aborted{0};
  // Rank 0 comes first only when a communicator with the same timeout has given up.
  run_ranks(kNumRanks, milliseconds(20), [&](Communicator& rank) {
    int data = rank.rank() == 0 ? 17 : 0;
    if (rank.rank() == 0) {
      const auto others = make_thread_communicators(2, milliseconds(40));
      EXPECT_NE(error_of([&] { kWaitingCalls[0].run(*others[0]); }), "");
    }
    rank.broadcast_idle(&data, sizeof(data), 0);
    EXPECT_EQ(data, 17);
    if (rank.rank() == 0) {
      rank.abort_all("the end");
    } else {
      const std::string error = error_of([&] { rank.broadcast_idle(&data, sizeof(data), 0); });
      EXPECT_EQ(error, "the end");
      num_aborted += error.empty() ? 0 : 1;
    }
  });
  EXPECT_EQ(num_aborted, kNumRanks - 1);
}

TEST(ThreadCommunicator, AnAbortOfASplitIsOneOfAll) {
  run_ranks(4, Communicator::kDefaultTimeout, [](Communicator& rank) {
    const auto half = rank.split(rank.rank() / 2);
    if (rank.rank() == 3) {
      half->abort_all("rank 3 ends");
    } else {
      EXPECT_EQ(error_of([&] {
                  kWaitingCalls[0].run(*half);
                  kWaitingCalls[0].run(rank);
                }),
                "rank 3 ends");
    }
  });
}

// Ranks free their buffers when they leave; those that still read them would crash, or be found by
// a sanitizer.
TEST(ThreadCommunicator, NobodyUsesMemoryOfARankThatWasAborted) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> num_calls{0};
    run_ranks(4, Communicator::kDefaultTimeout, [&](Communicator& rank) {
      const std::string error = error_of([&] {
        while (true) {
          std::vector<float> data(100'000, 1.0f);
          if (++num_calls == 10 + round) rank.abort_all("enough");
          rank.all_reduce_sum({data.data(), static_cast<int64_t>(data.size()), DType::kF32});
        }
      });
      EXPECT_EQ(error, "enough");
    });
  }
}

TEST(ThreadCommunicatorDeathTest, RanksThatCallDifferentOperationsAreOurBug) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      run_ranks(2, Communicator::kDefaultTimeout,
                [](Communicator& rank) { kWaitingCalls[rank.rank() == 0 ? 0 : 2].run(rank); }),
      "all_reduce_sum.*all_gather|all_gather.*all_reduce_sum");
}

TEST(ThreadCommunicatorDeathTest, WrongArgumentsAreOurBug) {
  const auto ranks = make_thread_communicators(2);
  char byte = 0;
  EXPECT_DEATH(ranks[0]->all_reduce_sum({&byte, 1, DType::kI8}), "i8");
  EXPECT_DEATH(ranks[0]->all_reduce_sum({nullptr, 1, DType::kF32}), "data != nullptr");
  EXPECT_DEATH(ranks[0]->all_reduce_sum({&byte, INT64_MAX, DType::kF32}), "has_value");
  EXPECT_DEATH(ranks[0]->all_gather(&byte, SIZE_MAX, &byte), "has_value");
  EXPECT_DEATH(ranks[0]->broadcast(&byte, 1, 2), "root");
  EXPECT_DEATH(ranks[0]->send(&byte, 1, 0), "to != rank");
  EXPECT_DEATH(ranks[0]->receive(&byte, 1, -1), "from");
  EXPECT_DEATH(ranks[0]->split(-1), "color");
}

}  // namespace
}  // namespace halley
