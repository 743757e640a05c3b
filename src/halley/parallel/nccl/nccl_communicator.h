// Ranks that are GPUs, by NCCL: over device memory, on streams, capturable.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "halley/parallel/base/communicator.h"

namespace halley {

/// One end for each of the GPUs, numbered as CUDA counts them, whose ranks are threads of this
/// process. Each is used by one thread, which has made its GPU the current one, and destroyed after
/// the graphs that have captured its operations. Throws DeviceError where NCCL is not installed or
/// does not start within the timeout.
std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(
    std::span<const int> devices,
    std::chrono::milliseconds timeout = Communicator::kDefaultTimeout);

/// The same for one rank of `host`, whose ranks all call it, each with a GPU of its own. `host`
/// must outlive it; an abort of either is one of both.
std::unique_ptr<Communicator> make_nccl_communicator(
    Communicator& host, int device,
    std::chrono::milliseconds timeout = Communicator::kDefaultTimeout);

}  // namespace halley
