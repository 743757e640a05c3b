// Ranks that are GPUs, by NCCL: over device memory, on streams, capturable.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
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

/// "2.27.7". Throws DeviceError where NCCL is not installed.
std::string nccl_version();

/// Memory of a GPU that all ranks have registered with NCCL ("symmetric memory"), for which it has
/// operations of less latency. Freed together with the ranks' others, before the communicator.
class NcclMemory {
 public:
  virtual ~NcclMemory() = default;
  virtual std::byte* data() const = 0;
};

/// All ranks of `comm`, one of those above, call it with the same size. Null in versions before
/// 2.27, which cannot register memory. Throws DeviceError.
std::unique_ptr<NcclMemory> make_nccl_memory(Communicator& comm, size_t num_bytes);

}  // namespace halley
