// What a block of the kernel for one or two rows keeps in shared memory. Pure functions of the host
// and the device.
#pragma once

#include <cstdint>

#include "halley/cuda/gemv/gemv_weight.h"

namespace halley::cuda {

/// They take turns along K: each has whole pieces.
inline constexpr int kGemvDigitWarps = 16;
/// Tiles of 16 outputs that a block has at a time, at most.
constexpr int gemv_digit_tiles(int bits) { return bits == 8 ? 2 : 4; }

struct GemvDigitPlan {
  int blocks = 0;
  int tiles = 0;   // at a time
  int stages = 0;  // of a warp's ring
  int stage_bytes = 0;
  int digits = 0;     // bytes before them
  int sums = 0;       // bytes before [2][warp][row][sum_pitch]
  int sum_pitch = 0;  // numbers
  int num_bytes = 0;
};

struct GemvDevice {
  int num_sms = 132;
  int shared_bytes_max = 232448;  // of a block
};

/// Of no blocks where the kernel does not take it: inputs of s8, 2 bits or 1, more than two rows,
/// groups below 128 inputs, or a K whose digits leave no room for two stages.
GemvDigitPlan plan_gemv_digits(const GemvShape& shape, int64_t M, const GemvDevice& device);

}  // namespace halley::cuda
