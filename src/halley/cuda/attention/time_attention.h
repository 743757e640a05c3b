// Times of decode and prefill attention on this GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley {

/// num_sequences of the same length, in one layer: decodes, or prefills of their last new tokens.
struct AttentionTimingCase {
  std::string name = {};
  KvDType dtype = KvDType::kF16;
  int64_t num_sequences = 1;
  int64_t num_tokens = 1024;   // of each, the new ones included
  int64_t num_new_tokens = 1;  // of each; 1: a decode
  int64_t num_heads = 32, num_kv_heads = 8, head_dim = 128;
  int64_t page_tokens = 16;
};

struct AttentionTiming {
  AttentionTimingCase shape;
  double median_us = 0;  // of a launch
  double least_us = 0, most_us = 0;
  /// num_kv_bytes at the device's read bandwidth, or num_flops at its FLOP rate where that takes
  /// longer.
  double floor_us = 0;
  int64_t num_kv_bytes = 0;
  double num_flops = 0;  // of QK^T and PV, for the positions that causal attention sees

  double tera_flops_per_second() const { return num_flops / median_us * 1e-6; }
};

/// Times launches in a graph over copies of the cache that together exceed the L2 cache several
/// times, so that keys and values come from HBM; the median of several replays. Floors assume a
/// read bandwidth and a dense 16-bit tensor-core rate; 4.66e12 B/s and 967e12 FLOP/s were measured
/// on an H200. Throws DeviceError where memory does not suffice.
std::vector<AttentionTiming> time_attention(const CudaDeviceInfo& device, double bytes_per_second,
                                            std::span<const AttentionTimingCase> cases,
                                            double flops_per_second = 967e12);

}  // namespace halley
