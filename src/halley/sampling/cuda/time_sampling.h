// Times the choice of tokens on this GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/sampling/base/token_choice.h"

namespace halley::cuda {

/// Rows with the same parameters.
struct SamplingTimingCase {
  std::string name = {};
  int64_t num_rows = 1;
  int64_t vocab_size = 128256;
  TokenChoice choice = {};
};

struct SamplingTiming {
  SamplingTimingCase shape;
  double median_us = 0;  // of a launch
  double least_us = 0, most_us = 0;
  double floor_us = 0;  // the logits once, at the device's read bandwidth
};

/// Greedy and drawn choices with one parameter, and with all of them; 1, 32 and 256 rows of
/// Llama-3's vocabulary.
std::vector<SamplingTimingCase> sampling_timing_cases();

/// Launches in a graph; the median of several replays. Logits are as a trained model's: some stand
/// out. They are the same in each launch, so that those of a small batch lie in the L2 cache, as
/// behind an output layer. Throws DeviceError where memory does not suffice.
std::vector<SamplingTiming> time_sampling(const CudaDeviceInfo& device, double bytes_per_second,
                                          std::span<const SamplingTimingCase> cases);

}  // namespace halley::cuda
