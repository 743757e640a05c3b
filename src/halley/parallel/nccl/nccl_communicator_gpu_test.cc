#include <algorithm>
#include <functional>
#include <latch>
#include <random>
#include <string>
#include <thread>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/parallel/base/thread_communicator.h"
#include "halley/parallel/nccl/nccl_communicator.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Eq;
using testing::HasSubstr;

// None, one, odd ones, and sizes for which NCCL chooses different protocols.
constexpr int64_t kSizes[] = {0, 1, 7, 4095, 65'536, 1'000'003};

/// A rank's thread has made its GPU the current one.
struct Rank {
  Communicator& comm;
  CudaStream& stream;

  int number() const { return comm.rank(); }

  /// Waits as an engine does.
  void wait() const {
    const CudaEvent event;
    stream.record(event);
    comm.wait_until([&] { return event.is_reached(); });
  }

  template <typename T>
  DeviceBuffer upload(const std::vector<T>& values) const {
    DeviceBuffer buffer(std::max<size_t>(1, values.size() * sizeof(T)), "a test's values");
    check_cuda(
        cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "copy to the device");
    return buffer;
  }

  template <typename T>
  std::vector<T> download(const DeviceBuffer& buffer, size_t count) const {
    wait();
    std::vector<T> values(count);
    check_cuda(cudaMemcpy(values.data(), buffer.data(), count * sizeof(T), cudaMemcpyDeviceToHost),
               "copy to the host");
    return values;
  }
};

/// The text of the DeviceError that is thrown; empty if there is none.
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return {};
}

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    for (const CudaDeviceInfo& device : list_cuda_devices()) devices_.push_back(device.ordinal);
    if (devices_.size() < 2) GTEST_SKIP() << "needs two GPUs, there is " << devices_.size();
  }

  int num_ranks() const { return static_cast<int>(devices_.size()); }

  /// Runs the body on a thread for each GPU. An error that it does not expect fails the test, and
  /// ends the other ranks.
  void run(std::chrono::milliseconds timeout, const std::function<void(const Rank&)>& body) const {
    auto comms = make_nccl_communicators(devices_, timeout);
    run_threads([&](int i) {
      Communicator& comm = *comms[static_cast<size_t>(i)];
      CudaStream stream;
      const std::string error = error_of([&] { body({comm, stream}); });
      EXPECT_EQ(error, "") << "rank " << i;
      if (!error.empty()) comm.abort_all(error);
    });
  }

  void run(const std::function<void(const Rank&)>& body) const {
    run(Communicator::kDefaultTimeout, body);
  }

  void run_threads(const std::function<void(int rank)>& body) const {
    std::vector<std::thread> threads;
    for (int i = 0; i < num_ranks(); ++i) {
      threads.emplace_back([&, i] {
        use_cuda_device(devices_[static_cast<size_t>(i)]);
        body(i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<int> devices_;
};

// Small integers: exact in every type and every order.
template <typename T>
void expect_sums(const Rank& rank, DType dtype, T (*from_f32)(float)) {
  for (const int64_t count : kSizes) {
    std::vector<T> values;
    std::vector<T> expected;
    const int num_ranks = rank.comm.num_ranks();
    for (int64_t i = 0; i < count; ++i) {
      const auto base = static_cast<float>(i % 13);
      values.push_back(from_f32(base + static_cast<float>(rank.number())));
      expected.push_back(from_f32(base * static_cast<float>(num_ranks) +
                                  static_cast<float>(num_ranks * (num_ranks - 1) / 2)));
    }
    const DeviceBuffer buffer = rank.upload(values);
    rank.comm.all_reduce_sum({buffer.data(), count, dtype}, rank.stream.get());
    EXPECT_TRUE(rank.download<T>(buffer, values.size()) == expected) << dtype << " " << count;
  }
}

TEST_F(Nccl, AddsEveryType) {
  run([](const Rank& rank) {
    expect_sums<float>(rank, DType::kF32, [](float x) { return x; });
    expect_sums<uint16_t>(rank, DType::kF16, f32_to_f16);
    expect_sums<uint16_t>(rank, DType::kBf16, f32_to_bf16);
  });
}

TEST_F(Nccl, SumsHaveTheSameBitsOnAllRanks) {
  std::vector<std::vector<std::vector<float>>> sums(devices_.size());
  run([&](const Rank& rank) {
    std::mt19937 random(static_cast<uint32_t>(rank.number()));
    std::normal_distribution<float> normal;
    for (const int64_t count : kSizes) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = normal(random);
      const DeviceBuffer buffer = rank.upload(values);
      rank.comm.all_reduce_sum({buffer.data(), count, DType::kF32}, rank.stream.get());
      sums[static_cast<size_t>(rank.number())].push_back(
          rank.download<float>(buffer, values.size()));
    }
  });
  for (const auto& of_rank : sums) EXPECT_TRUE(of_rank == sums[0]);
}

TEST_F(Nccl, TakesTheLargest) {
  run([](const Rank& rank) {
    const auto own = static_cast<float>(rank.number());
    const DeviceBuffer buffer = rank.upload<float>({own, -own, 3});
    rank.comm.all_reduce_max({buffer.data(), 3, DType::kF32}, rank.stream.get());
    EXPECT_THAT(rank.download<float>(buffer, 3),
                testing::ElementsAre(static_cast<float>(rank.comm.num_ranks() - 1), 0, 3));
  });
}

TEST_F(Nccl, GathersWithinOneBufferToo) {
  run([](const Rank& rank) {
    const auto num_ranks = static_cast<size_t>(rank.comm.num_ranks());
    constexpr size_t kBytes = 1001;
    std::vector<uint8_t> expected;
    for (size_t i = 0; i < num_ranks; ++i) {
      expected.insert(expected.end(), kBytes, static_cast<uint8_t>(i + 1));
    }
    const std::vector<uint8_t> own(kBytes, static_cast<uint8_t>(rank.number() + 1));
    const DeviceBuffer from = rank.upload(own);
    const DeviceBuffer all = rank.upload(std::vector<uint8_t>(expected.size()));
    rank.comm.all_gather(from.data(), kBytes, all.data(), rank.stream.get());
    EXPECT_EQ(rank.download<uint8_t>(all, expected.size()), expected);

    std::vector<uint8_t> rows(expected.size());
    const size_t begin = kBytes * static_cast<size_t>(rank.number());
    std::copy(own.begin(), own.end(), rows.begin() + static_cast<std::ptrdiff_t>(begin));
    const DeviceBuffer in_place = rank.upload(rows);
    rank.comm.all_gather(in_place.data() + begin, kBytes, in_place.data(), rank.stream.get());
    EXPECT_EQ(rank.download<uint8_t>(in_place, expected.size()), expected);
  });
}

TEST_F(Nccl, BroadcastsAndSends) {
  run([](const Rank& rank) {
    const int last = rank.comm.num_ranks() - 1;
    const DeviceBuffer data = rank.upload<int>({rank.number()});
    rank.comm.broadcast(data.data(), sizeof(int), last, rank.stream.get());
    EXPECT_EQ(rank.download<int>(data, 1)[0], last);
    // From each rank to the next one; what arrives is one more.
    const DeviceBuffer own = rank.upload<int>({100 + rank.number()});
    const DeviceBuffer received = rank.upload<int>({0});
    if (rank.number() < last) {
      rank.comm.send(own.data(), sizeof(int), rank.number() + 1, rank.stream.get());
    }
    if (rank.number() > 0) {
      rank.comm.receive(received.data(), sizeof(int), rank.number() - 1, rank.stream.get());
      EXPECT_EQ(rank.download<int>(received, 1)[0], 99 + rank.number());
    }
    rank.wait();
  });
}

TEST_F(Nccl, SplitsByColor) {
  run([](const Rank& rank) {
    const auto part = rank.comm.split(rank.number() == 0 ? 0 : 1);
    EXPECT_EQ(part->num_ranks(), rank.number() == 0 ? 1 : rank.comm.num_ranks() - 1);
    EXPECT_EQ(part->rank(), rank.number() == 0 ? 0 : rank.number() - 1);
    const DeviceBuffer one = rank.upload<float>({1});
    part->all_reduce_sum({one.data(), 1, DType::kF32}, rank.stream.get());
    EXPECT_EQ(rank.download<float>(one, 1)[0], static_cast<float>(part->num_ranks()));
    rank.comm.all_reduce_max({one.data(), 1, DType::kF32}, rank.stream.get());
    EXPECT_EQ(rank.download<float>(one, 1)[0], static_cast<float>(rank.comm.num_ranks() - 1));
  });
}

// No operation ran before the capture; three all-reduces of a graph multiply by R^3.
TEST_F(Nccl, GraphsHoldAllReduces) {
  run([](const Rank& rank) {
    constexpr int64_t kCount = 4096;
    const DeviceBuffer buffer = rank.upload(std::vector<float>(kCount, 1.0f));
    const CudaGraph graph = CudaGraph::capture(rank.stream, [&] {
      for (int i = 0; i < 3; ++i) {
        rank.comm.all_reduce_sum({buffer.data(), kCount, DType::kF32}, rank.stream.get());
      }
    });
    EXPECT_GE(graph.num_nodes(), 3U);
    EXPECT_THAT(rank.download<float>(buffer, kCount), Each(Eq(1.0f))) << "the capture ran";
    float expected = 1;
    for (int launch = 0; launch < 2; ++launch) {
      graph.launch(rank.stream);
      for (int i = 0; i < 3; ++i) expected *= static_cast<float>(rank.comm.num_ranks());
      EXPECT_THAT(rank.download<float>(buffer, kCount), Each(Eq(expected)));
    }
    // Operations outside of the graph go on between its launches.
    rank.comm.all_reduce_max({buffer.data(), kCount, DType::kF32}, rank.stream.get());
    graph.launch(rank.stream);
    for (int i = 0; i < 3; ++i) expected *= static_cast<float>(rank.comm.num_ranks());
    EXPECT_THAT(rank.download<float>(buffer, kCount), Each(Eq(expected)));
  });
}

TEST_F(Nccl, ARankThatDoesNotComeIsAnErrorAndFreesTheStreams) {
  // Long enough for the start of NCCL, which has the same limit.
  run(std::chrono::seconds(20), [](const Rank& rank) {
    if (rank.number() == 1) return;
    const DeviceBuffer one = rank.upload<float>({1});
    const std::string error = error_of([&] {
      rank.comm.all_reduce_sum({one.data(), 1, DType::kF32}, rank.stream.get());
      rank.wait();
    });
    EXPECT_THAT(error, AllOf(HasSubstr("queued work on rank "),
                             HasSubstr("another rank did not take part within 20 s")));
    // NCCL's kernel waits no more.
    rank.stream.synchronize();
    EXPECT_EQ(error_of([&] { rank.comm.check_async(); }), error);
  });
}

TEST_F(Nccl, AnAbortEndsWhatOthersWaitFor) {
  std::latch have_begun(num_ranks() - 1);
  run([&](const Rank& rank) {
    if (rank.number() == 0) {
      have_begun.wait();
      rank.comm.abort_all("rank 0: no memory");
      return;
    }
    const DeviceBuffer one = rank.upload<float>({1});
    rank.comm.all_reduce_sum({one.data(), 1, DType::kF32}, rank.stream.get());
    have_begun.count_down();
    EXPECT_EQ(error_of([&] { rank.wait(); }), "rank 0: no memory");
    rank.stream.synchronize();
  });
}

TEST_F(Nccl, RanksOfACommunicatorOfTheHost) {
  const auto hosts = make_thread_communicators(num_ranks());
  run_threads([&](int i) {
    const auto index = static_cast<size_t>(i);
    const auto comm = make_nccl_communicator(*hosts[index], devices_[index]);
    CudaStream stream;
    const Rank rank{*comm, stream};
    EXPECT_EQ(comm->rank(), i);
    expect_sums<float>(rank, DType::kF32, [](float x) { return x; });
  });
}

TEST_F(Nccl, AddsInRegisteredMemory) {
  run([](const Rank& rank) {
    constexpr int64_t kCount = 4096;
    const auto memory = make_nccl_memory(rank.comm, kCount * sizeof(float));
    if (memory == nullptr) GTEST_SKIP() << "NCCL " << nccl_version() << " registers no memory";
    const std::vector<float> ones(kCount, 1.0f);
    check_cuda(
        cudaMemcpy(memory->data(), ones.data(), kCount * sizeof(float), cudaMemcpyHostToDevice),
        "copy to the device");
    rank.comm.all_reduce_sum({memory->data(), kCount, DType::kF32}, rank.stream.get());
    rank.wait();
    std::vector<float> sums(kCount);
    check_cuda(
        cudaMemcpy(sums.data(), memory->data(), kCount * sizeof(float), cudaMemcpyDeviceToHost),
        "copy to the host");
    EXPECT_THAT(sums, Each(Eq(static_cast<float>(rank.comm.num_ranks()))));
  });
}

TEST_F(Nccl, OneGpuTwiceIsAnError) {
  const int twice[] = {devices_[0], devices_[0]};
  EXPECT_THAT(error_of([&] { make_nccl_communicators(twice); }),
              AllOf(HasSubstr("start of NCCL on rank "), HasSubstr("NCCL: ")));
}

TEST(NcclOneGpu, IsARankToo) {
  const int device = use_cuda_device(0).ordinal;
  const auto comms = make_nccl_communicators({&device, 1});
  CudaStream stream;
  const Rank rank{*comms[0], stream};
  const DeviceBuffer own = rank.upload<int>({17}), all = rank.upload<int>({0});
  rank.comm.all_gather(own.data(), sizeof(int), all.data(), stream.get());
  EXPECT_EQ(rank.download<int>(all, 1)[0], 17);
  const auto part = rank.comm.split(3);
  EXPECT_EQ(part->num_ranks(), 1);
}

}  // namespace
}  // namespace halley
