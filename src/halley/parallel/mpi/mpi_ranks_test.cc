// A rank of the jobs that tests/parallel/mpi_job_test.py starts: without an argument it runs the
// tests of this file with the other ranks, else the scenario of that name.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/parallel/base/testing/communicator_cases.h"
#include "halley/parallel/mpi/mpi_communicator.h"

namespace halley {
namespace {

std::unique_ptr<Communicator> world;

class Ranks : public testing::TestWithParam<CommunicatorCase> {};

TEST_P(Ranks, Case) { GetParam().run(*world); }

INSTANTIATE_TEST_SUITE_P(All, Ranks,
                         testing::ValuesIn(communicator_cases().begin(),
                                           communicator_cases().end()),
                         [](const auto& test) { return std::string(test.param.name); });

// MPI counts in int, and the communicator sends pieces of 16 MiB.
TEST(LargeMessages, GoInPieces) {
  if (world->num_ranks() == 1) GTEST_SKIP() << "one rank sends nothing";
  constexpr size_t kBytes = (size_t{16} << 20) + 3;
  const auto own = static_cast<char>(world->rank() + 1);
  std::vector<char> data(kBytes, own), all(kBytes * static_cast<size_t>(world->num_ranks()));
  world->all_gather(data.data(), kBytes, all.data());
  for (size_t i = 0; i < all.size(); i += kBytes) {
    const auto row = all.begin() + static_cast<std::ptrdiff_t>(i);
    EXPECT_EQ(std::count(row, row + kBytes, static_cast<char>(i / kBytes + 1)), kBytes);
  }
  world->broadcast(data.data(), kBytes, 1);
  EXPECT_EQ(std::count(data.begin(), data.end(), 2), kBytes);
  std::fill(data.begin(), data.end(), own);
  if (world->rank() == 0) world->send(data.data(), kBytes, 1);
  if (world->rank() == 1) {
    world->receive(data.data(), kBytes, 0);
    EXPECT_EQ(std::count(data.begin(), data.end(), 1), kBytes);
  }
}

[[noreturn]] void hang() {
  while (true) pause();
}

/// The last rank does what the name says; the others wait for it.
struct Scenario {
  std::string_view name;
  std::chrono::milliseconds timeout;
  void (*run)(Communicator& rank, bool is_last);
};

constexpr std::chrono::milliseconds kShort(200);
constexpr Scenario kScenarios[] = {
    {"ends", Communicator::kDefaultTimeout, [](Communicator&, bool) {}},
    {"hangs", kShort,
     [](Communicator& rank, bool is_last) {
       if (is_last) hang();
       float one = 1;
       rank.all_reduce_sum({&one, 1, DType::kF32});
     }},
    {"does_not_send", kShort,
     [](Communicator& rank, bool is_last) {
       if (is_last) hang();
       char byte = 0;
       rank.receive(&byte, 1, rank.num_ranks() - 1);
     }},
    {"sends_too_much", Communicator::kDefaultTimeout,
     [](Communicator& rank, bool is_last) {
       char bytes[2] = {};
       if (is_last) {
         rank.send(bytes, 2, 0);
       } else {
         rank.receive(bytes, 1, rank.num_ranks() - 1);
       }
     }},
    {"is_killed", kShort,
     [](Communicator& rank, bool is_last) {
       if (is_last) hang();
       rank.broadcast_idle(&is_last, 1, rank.num_ranks() - 1);
     }},
    {"aborts", Communicator::kDefaultTimeout,
     [](Communicator& rank, bool is_last) {
       if (is_last) rank.abort_all("no memory for the weights");
       rank.broadcast_idle(&is_last, 1, rank.num_ranks() - 1);
     }},
    {"throws", Communicator::kDefaultTimeout,
     [](Communicator& rank, bool is_last) {
       if (is_last) throw InputError("there is no such model");
       rank.broadcast_idle(&is_last, 1, rank.num_ranks() - 1);
     }},
    {"ends_the_job", Communicator::kDefaultTimeout,
     [](Communicator& rank, bool is_last) {
       if (is_last) abort_mpi_job(3);
       rank.broadcast_idle(&is_last, 1, rank.num_ranks() - 1);
     }},
    {"leaves", kShort,
     [](Communicator& rank, bool is_last) {
       if (!is_last) rank.broadcast_idle(&is_last, 1, rank.num_ranks() - 1);
     }},
};

int run_scenario(std::string_view name) {
  const auto* scenario =
      std::find_if(std::begin(kScenarios), std::end(kScenarios),
                   [&](const Scenario& candidate) { return candidate.name == name; });
  if (scenario == std::end(kScenarios)) return 2;
  try {
    const auto rank = make_mpi_communicator(scenario->timeout);
    std::cout << "pid " << getpid() << std::endl;
    // A job that ends at once kills ranks that have not said their pid yet.
    float one = 1;
    if (scenario->timeout != kShort) rank->all_reduce_sum({&one, 1, DType::kF32});
    const bool is_last = rank->rank() == rank->num_ranks() - 1;
    try {
      scenario->run(*rank, is_last);
    } catch (const DeviceError& error) {
      EXPECT_THROW(rank->check_async(), DeviceError);  // and no operation would begin
      throw;
    }
    return 0;
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace
}  // namespace halley

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) return halley::run_scenario(argv[1]);
  halley::world = halley::make_mpi_communicator();
  const int status = RUN_ALL_TESTS();
  halley::world.reset();
  return status;
}
