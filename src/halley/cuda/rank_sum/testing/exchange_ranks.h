// For tests: ranks that one thread drives, on all GPUs or several on one.
#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "halley/cuda/rank_sum/peer_exchange.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/parallel/base/thread_communicator.h"

namespace halley::cuda {

// CUDA reads these when it starts. By default it loads a kernel at its first launch, and waits for
// the GPU then: on a GPU of several ranks for a kernel that waits for this launch. Streams that
// share a connection wait for each other.
inline const int kLoadsAllKernels = setenv("CUDA_MODULE_LOADING", "EAGER", 1);
inline const int kHasManyConnections = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);

/// A rank with its GPU, stream and end of the exchange.
struct ExchangeRank {
  ExchangeRank(std::unique_ptr<Communicator> communicator, int ordinal)
      : device(use_cuda_device(ordinal)),
        host(std::move(communicator)),
        stream(std::make_unique<CudaStream>()),
        workspace(size_t{64} << 20, "a test's workspace") {}

  int number() const { return host->rank(); }
  CudaContext context() { return {device, *stream, workspace}; }

  CudaDeviceInfo device;
  std::unique_ptr<Communicator> host;
  std::unique_ptr<CudaStream> stream;
  DeviceArena workspace;
  std::unique_ptr<PeerExchange> exchange;
};

/// Work is queued on one rank after the other, and nothing that waits for a GPU stands in between:
/// a rank's kernels wait for those of the next one.
class ExchangeRanks {
 public:
  struct Options {
    size_t rows_bytes_max = PeerExchange::kDefaultBytesMax;
    std::chrono::milliseconds timeout{20'000};
  };

  ExchangeRanks(const std::vector<int>& ordinals, const Options& options) {
    auto hosts = make_thread_communicators(static_cast<int>(ordinals.size()));
    for (size_t r = 0; r < ordinals.size(); ++r) {
      ranks_.push_back(std::make_unique<ExchangeRank>(std::move(hosts[r]), ordinals[r]));
    }
    std::vector<std::thread> threads;
    for (const auto& rank : ranks_) {
      threads.emplace_back([&rank = *rank, &options] {
        use_cuda_device(rank.device.ordinal);
        ASSERT_EQ(why_no_peer_exchange(*rank.host, rank.device), "");
        rank.exchange = std::make_unique<PeerExchange>(*rank.host, rank.device,
                                                       options.rows_bytes_max, options.timeout);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  size_t size() const { return ranks_.size(); }
  ExchangeRank& operator[](size_t r) { return *ranks_[r]; }

  /// Runs the body for each rank, whose GPU is the current one.
  void for_each(const std::function<void(ExchangeRank& rank)>& body) {
    for (const auto& rank : ranks_) {
      check_cuda(cudaSetDevice(rank->device.ordinal), "choice of a GPU");
      body(*rank);
    }
  }

  /// Waits for all streams, and for what has failed.
  void finish() {
    for_each([](ExchangeRank& rank) { rank.stream->synchronize(); });
    for_each([](ExchangeRank& rank) { rank.exchange->check(); });
  }

 private:
  std::vector<std::unique_ptr<ExchangeRank>> ranks_;
};

/// Ranks on one GPU, or 0: one rank on each GPU.
class ExchangeTest : public testing::TestWithParam<int> {
 public:
  static std::string name(const testing::TestParamInfo<int>& info) {
    return info.param == 0 ? "EachGpu" : "RanksOnOneGpu" + std::to_string(info.param);
  }

 protected:
  void SetUp() override {
    const auto num_gpus = list_cuda_devices().size();
    if (GetParam() == 0 && num_gpus < 2) GTEST_SKIP() << "needs two GPUs, there is " << num_gpus;
    if (GetParam() > 0) ordinals_.resize(static_cast<size_t>(GetParam()), 0);
    for (size_t i = 0; GetParam() == 0 && i < num_gpus && i < kExchangeRanksMax; ++i) {
      ordinals_.push_back(static_cast<int>(i));
    }
  }

  ExchangeRanks make_ranks(const ExchangeRanks::Options& options = {}) const {
    return ExchangeRanks(ordinals_, options);
  }

  std::vector<int> ordinals_;
};

inline const auto kRankCases = testing::Values(0, 1, 2, 3, 5);

}  // namespace halley::cuda
