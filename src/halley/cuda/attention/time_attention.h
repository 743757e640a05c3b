// Times of decode attention on this GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley {

/// num_sequences decodes of the same length, in one layer.
struct AttentionTimingCase {
  std::string name = {};
  KvDType dtype = KvDType::kF16;
  int64_t num_sequences = 1;
  int64_t num_tokens = 1024;  // of each, the new one included
  int64_t num_heads = 32, num_kv_heads = 8, head_dim = 128;
  int64_t page_tokens = 16;
};

struct AttentionTiming {
  AttentionTimingCase shape;
  double median_us = 0;  // of a launch
  double least_us = 0, most_us = 0;
  double floor_us = 0;  // num_kv_bytes at the device's read bandwidth
  int64_t num_kv_bytes = 0;
};

/// Decodes of Llama-3's heads: 32 x 4096, 64 x 8192, 128 x 2048, 1 x 32768 and 1 x 1024, for caches
/// of f16, fp8, int8 and int4.
std::vector<AttentionTimingCase> attention_timing_cases();

/// Launches in a graph over copies of the cache that together exceed the L2 cache several times, so
/// that keys and values come from memory; the median of several replays. `bytes_per_second` is the
/// bandwidth that the floor counts with: 4.66e12 was measured on an H200. Throws DeviceError where
/// memory does not suffice.
std::vector<AttentionTiming> time_attention(const CudaDeviceInfo& device, double bytes_per_second,
                                            std::span<const AttentionTimingCase> cases);

}  // namespace halley
