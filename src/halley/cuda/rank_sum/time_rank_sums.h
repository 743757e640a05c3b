// Times sums over ranks, alone and with the norm behind them, next to another communicator's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/parallel/base/communicator.h"

namespace halley::cuda {

/// Rows of 16 bits that are summed.
struct RankSumShape {
  int64_t M = 1, K = 8192;

  size_t num_bytes() const { return static_cast<size_t>(M * K) * sizeof(uint16_t); }
};

/// Microseconds of one sum, and of one with the addition to the residual stream and the norm.
struct SumTimes {
  double sum_us = 0, norm_us = 0;
};

struct RankSumTiming {
  RankSumShape shape;
  SumTimes one_shot;                   // sum_over_ranks(), sum_add_norm_rows()
  std::optional<SumTimes> peer;        // the other communicator, then add_norm_rows()
  std::optional<SumTimes> registered;  // the same in its registered memory
};

/// One rank's part.
struct RankSumTimer {
  Communicator& host;  // of host memory
  const CudaDeviceInfo& device;
  Communicator* peer = nullptr;     // of GPU memory; null: not timed
  std::byte* registered = nullptr;  // of `peer`, kTimedRows of the largest shape; null: not timed
};

/// The matrices that calls use by turns.
inline constexpr int kTimedRows = 8;

/// All ranks call it, each on its thread, whose current GPU is the rank's, with the same shapes and
/// the same parts to time. Calls are launched as a graph; the median of its replays counts, each of
/// the rank that started last, which waited least. Throws DeviceError.
std::vector<RankSumTiming> time_rank_sums(const RankSumTimer& timer,
                                          std::span<const RankSumShape> shapes);

}  // namespace halley::cuda
