// The context of an operation's run, passed explicitly to every kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/core/precision.h"
#include "halley/core/thread_pool.h"

namespace halley {

/// The CPU backend's context. Kernels may use all threads of the pool; one caller at a time.
struct ExecContext {
  ThreadPool& pool;
  /// The precision of linear layers whose weights hold two, in steps that do not say theirs.
  Precision precision = Precision::kFull;
  /// A linear layer's x may be some columns of a wider matrix. Then these are, for each row, a
  /// magnitude that no number of the wider row exceeds, infinity where one is NaN: activations with
  /// a per-token scale get that of the wider row. Empty: x is the whole.
  std::span<const float> row_magnitudes = {};

  /// The magnitude of row `index`, or 0.
  float row_magnitude(int64_t index) const {
    return row_magnitudes.empty() ? 0.0f : row_magnitudes[static_cast<size_t>(index)];
  }
};

}  // namespace halley
