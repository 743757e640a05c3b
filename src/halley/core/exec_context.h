// The context of an operation's run, passed explicitly to every kernel.
#pragma once

#include "halley/core/precision.h"
#include "halley/core/thread_pool.h"

namespace halley {

/// The CPU backend's context. Kernels may use all threads of the pool; one caller at a time.
struct ExecContext {
  ThreadPool& pool;
  /// The precision of linear layers whose weights hold two, in steps that do not say theirs.
  Precision precision = Precision::kFull;
};

}  // namespace halley
