// What the one row of a product's inputs is made of.
#pragma once

#include <cstdint>

#include "halley/cuda/ops/norm.h"

namespace halley::cuda {

inline constexpr int64_t kRowInputsMax = 16384;
inline constexpr int64_t kNormedRowInputsMax = 8192;
/// Shared memory that a block makes the row with, in words of 4 bytes (RowInputs).
inline constexpr int kRowScratchWords = 96;

/// Of K inputs, a multiple of 4; device memory, all rows at multiples of 16 bytes.
struct RowSource {
  int K = 0;
  int padded_inputs = 0;  // those behind K are zero
  bool has_norm = false;  // root mean square
  bool is_bf16 = false;   // numbers of 16 bits, otherwise f16
  NormParams norm = {};
  const float* hidden = nullptr;  // with a norm
  /// 16 bits: the row, or with a norm what is added to `hidden` first; then null: nothing is.
  const void* x = nullptr;
  float* sum = nullptr;  // with a norm and x: what was added, from block 0
};

}  // namespace halley::cuda
