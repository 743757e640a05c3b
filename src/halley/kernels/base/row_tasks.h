// Splits an operation over rows into tasks for the pool, or runs it on the caller's thread where
// waking the pool would cost more than the work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "halley/base/checked_math.h"
#include "halley/core/exec_context.h"

namespace halley {

/// Below this many elements an elementwise operation takes a few microseconds, about what it
/// costs to start a loop on the pool and to wait for its threads.
inline constexpr int64_t kSerialElements = 32768;
/// A task's size: long enough to hide taking it, short enough to balance the threads.
inline constexpr int64_t kTaskElements = 8192;

/// Calls body(begin, end) for ranges that cover [0, num_rows) once. `row_elements` is the cost of
/// a row in elements of a plain elementwise operation. The ranges must not matter to the result.
template <typename Body>
void for_row_ranges(ExecContext& context, int64_t num_rows, int64_t row_elements,
                    const Body& body) {
  if (num_rows <= 0) return;
  const int64_t cost = std::max<int64_t>(1, row_elements);
  if (num_rows == 1 || num_rows * cost <= kSerialElements || context.pool.num_threads() == 1) {
    body(int64_t{0}, num_rows);
    return;
  }
  const int64_t rows_per_task = std::max<int64_t>(1, kTaskElements / cost);
  context.pool.run(ceil_div(num_rows, rows_per_task), [&](int64_t task, int /*thread*/) {
    const int64_t begin = task * rows_per_task;
    body(begin, std::min(num_rows, begin + rows_per_task));
  });
}

}  // namespace halley
