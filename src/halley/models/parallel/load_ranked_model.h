// Loads a model that several ranks run together.
#pragma once

#include <chrono>
#include <memory>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/models/all/load_model.h"
#include "halley/parallel/base/communicator.h"

namespace halley {

struct ThreadRanks {
  int num_ranks = 2;   // of all stages, at least 2
  int num_stages = 1;  // divides num_ranks
  std::chrono::milliseconds timeout = Communicator::kDefaultTimeout;
  int ranks_per_gpu = 1;  // more: in tests, for want of GPUs
};

/// To be called before this process first uses CUDA, where its ranks will be threads: CUDA then
/// loads all kernels with their module. Loading one later, it may wait for a kernel that waits for
/// another rank (CUDA_MODULE_LOADING, which the environment may set otherwise).
void load_kernels_eagerly();

/// Each rank is a thread of this process with a pool of as many threads as `context` has, which is
/// rank 0's. The model's steps throw DeviceError where a rank does not come within the timeout. The
/// plan is that of rank 0. Throws as load_model(), for any rank.
LoadedDecoder load_ranked_model(ExecContext& context, const ThreadRanks& ranks,
                                const HfConfig& config, const TensorSource& source,
                                const LoadProgress& progress, const LoadOptions& options);

/// The ranks are processes, in so many stages; this one is `ranks`. On rank 0 as above. On the
/// others it runs their share until rank 0 ends, and then returns no model. Throws as load_model();
/// the process then ends its job (abort_mpi_job()), with its own message and exit code.
struct ProcessRank {
  std::unique_ptr<Communicator> ranks;
  int num_stages = 1;  // divides the number of ranks
};
LoadedDecoder load_as_rank(ExecContext& context, ProcessRank rank, const HfConfig& config,
                           const TensorSource& source, const LoadProgress& progress,
                           const LoadOptions& options);

}  // namespace halley
