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
  /// Where a linear layer's x are some columns of a wider matrix: for each row a magnitude that no
  /// number of the wider row exceeds, infinity where one is NaN. Activations with a scale per token
  /// are rounded with that of the wider row. Empty: x is the whole.
  std::span<const float> row_magnitudes = {};

  /// The magnitude of row `index`, or 0.
  float row_magnitude(int64_t index) const {
    return row_magnitudes.empty() ? 0.0f : row_magnitudes[static_cast<size_t>(index)];
  }
};

}  // namespace halley
