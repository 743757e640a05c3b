// Where an operation runs: passed explicitly to every kernel.
#pragma once

#include "halley/core/thread_pool.h"

namespace halley {

/// The CPU backend's context. Kernels may use all threads of the pool; one caller at a time.
struct ExecContext {
  ThreadPool& pool;
};

}  // namespace halley
