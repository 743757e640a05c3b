#include "halley/cuda/rank_sum/time_rank_sums.h"

#include <algorithm>
#include <functional>

#include <cuda_runtime_api.h>

#include "halley/core/matrix.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/rank_sum/peer_exchange.h"
#include "halley/cuda/rank_sum/rank_sum.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {
namespace {

constexpr DType kType = DType::kBf16;
constexpr int kCalls = 10 * kTimedRows;
constexpr int kReplays = 31;
constexpr int kWarmReplays = 3;

size_t largest_bytes(std::span<const RankSumShape> shapes) {
  size_t bytes = 0;
  for (const RankSumShape& shape : shapes) bytes = std::max(bytes, shape.num_bytes());
  return bytes;
}

int64_t most_columns(std::span<const RankSumShape> shapes) {
  int64_t columns = 0;
  for (const RankSumShape& shape : shapes) columns = std::max(columns, shape.K);
  return columns;
}

/// Memory of zeros, whose sums are zeros: speed does not depend on the values.
DeviceBuffer zeros(size_t num_bytes, const char* what) {
  DeviceBuffer buffer(num_bytes, what);
  check_cuda(cudaMemset(buffer.data(), 0, num_bytes), what);
  return buffer;
}

class Timer {
 public:
  Timer(const RankSumTimer& rank, std::span<const RankSumShape> shapes)
      : rank_(rank),
        rows_bytes_(largest_bytes(shapes)),
        workspace_(DeviceArena::kAlignment, "the workspace of sums"),
        exchange_(rank.host, rank.device, rows_bytes_),
        rows_(zeros(kTimedRows * rows_bytes_, "timed rows")),
        normed_(zeros(kTimedRows * rows_bytes_, "timed norms")),
        hidden_(zeros(kTimedRows * 2 * rows_bytes_, "timed residual streams")),
        weight_(zeros(static_cast<size_t>(most_columns(shapes)) * sizeof(float), "a norm")) {
    check_cuda(cudaDeviceSynchronize(), "memory of a timing");
  }

  RankSumTiming time(const RankSumShape& shape) {
    const auto sum_by_peer = [&](const Matrix& rows) {
      rank_.peer->all_reduce_sum({rows.data, rows.num_rows * rows.num_cols, kType}, stream_.get());
    };
    const auto times_of_peer = [&](std::byte* memory) {
      return SumTimes{
          .sum_us = time([&](int call) { sum_by_peer(matrix(memory, kType, shape, call)); }),
          .norm_us = time([&](int call) {
            const Matrix block = matrix(memory, kType, shape, call);
            sum_by_peer(block);
            add_norm_rows(context_, params(), block, hidden(shape, call), normed(shape, call));
          })};
    };
    RankSumTiming timing;
    timing.shape = shape;
    timing.one_shot.sum_us = time([&](int call) {
      sum_over_ranks(context_, exchange_, matrix(rows_.data(), kType, shape, call));
    });
    timing.one_shot.norm_us = time([&](int call) {
      sum_add_norm_rows(context_, exchange_, params(), matrix(rows_.data(), kType, shape, call),
                        hidden(shape, call), normed(shape, call));
    });
    if (rank_.peer != nullptr) timing.peer = times_of_peer(rows_.data());
    if (rank_.registered != nullptr) timing.registered = times_of_peer(rank_.registered);
    return timing;
  }

 private:
  static Matrix matrix(std::byte* memory, DType dtype, const RankSumShape& shape, int call) {
    const size_t bytes = shape.num_bytes() * (dtype == DType::kF32 ? 2 : 1);
    return {memory + static_cast<size_t>(call % kTimedRows) * bytes, dtype, shape.M, shape.K,
            shape.K};
  }
  Matrix hidden(const RankSumShape& shape, int call) const {
    return matrix(hidden_.data(), DType::kF32, shape, call);
  }
  Matrix normed(const RankSumShape& shape, int call) const {
    return matrix(normed_.data(), kType, shape, call);
  }
  NormParams params() const {
    return {.weight = reinterpret_cast<const float*>(weight_.data()), .epsilon = 1e-5f};
  }

  void wait() {
    const CudaEvent reached;
    stream_.record(reached);
    rank_.host.wait_until([&] {
      exchange_.check();
      if (rank_.peer != nullptr) rank_.peer->check_async();
      return reached.is_reached();
    });
  }

  /// Microseconds of a call; launch(number of the call) queues it.
  double time(const std::function<void(int call)>& launch) {
    const CudaGraph graph = CudaGraph::capture(stream_, [&] {
      for (int call = 0; call < kCalls; ++call) launch(call);
    });
    for (int replay = 0; replay < kWarmReplays; ++replay) graph.launch(stream_);
    wait();
    const CudaEvent start(CudaEvent::Time::kYes), end(CudaEvent::Time::kYes);
    std::vector<double> times;
    std::vector<uint8_t> ready(static_cast<size_t>(rank_.host.num_ranks()));
    for (int replay = 0; replay < kReplays; ++replay) {
      const uint8_t own = 1;
      rank_.host.all_gather(&own, sizeof(own), ready.data());
      stream_.record(start);
      graph.launch(stream_);
      stream_.record(end);
      wait();
      float negative = -end.milliseconds_since(start);
      rank_.host.all_reduce_max({&negative, 1, DType::kF32});
      times.push_back(-1e3 * static_cast<double>(negative) / kCalls);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  const RankSumTimer& rank_;
  const size_t rows_bytes_;
  const CudaStream stream_;
  DeviceArena workspace_;
  const CudaContext context_{rank_.device, stream_, workspace_};
  PeerExchange exchange_;
  const DeviceBuffer rows_, normed_, hidden_, weight_;
};

}  // namespace

std::vector<RankSumTiming> time_rank_sums(const RankSumTimer& timer,
                                          std::span<const RankSumShape> shapes) {
  Timer of_rank(timer, shapes);
  std::vector<RankSumTiming> timings;
  for (const RankSumShape& shape : shapes) timings.push_back(of_rank.time(shape));
  return timings;
}

}  // namespace halley::cuda
