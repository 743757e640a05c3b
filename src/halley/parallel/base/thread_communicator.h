// Ranks that are threads of this process, over host memory.
#pragma once

#include <memory>
#include <vector>

#include "halley/parallel/base/communicator.h"

namespace halley {

/// One end for each of `num_ranks` >= 1 threads. With one rank nothing waits.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int num_ranks, std::chrono::milliseconds timeout = Communicator::kDefaultTimeout);

}  // namespace halley
