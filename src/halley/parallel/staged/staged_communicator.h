// Ranks of one GPU: over device memory, by way of the host.
#pragma once

#include <memory>

#include "halley/parallel/base/communicator.h"

namespace halley {

/// A communicator of device memory for ranks that share a GPU, which NCCL does not serve: for tests
/// of many ranks on few GPUs. An operation waits for its stream, copies to the host, communicates
/// by `host`, which outlives it, and copies back. It is slow, and cannot be captured. The calling
/// thread's current device is that of the memory. Throws DeviceError as `host` does.
std::unique_ptr<Communicator> make_staged_communicator(Communicator& host);

}  // namespace halley
