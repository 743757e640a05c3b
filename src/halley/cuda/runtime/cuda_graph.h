// A sequence of launches that the GPU starts as one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

#include "halley/cuda/runtime/cuda_stream.h"

namespace halley {

/// Move-only. Launches use the addresses that they were captured with.
class CudaGraph {
 public:
  /// kKept: kernels that may start before those ahead of them have ended (pdl_launch.cuh) do so.
  /// kRemoved: each waits for the end of those ahead of it.
  enum class ProgrammaticEdges { kKept, kRemoved };

  /// Records what `launch_all` queues on the stream, without running it. It must not wait for the
  /// GPU, allocate, or use another stream that is not ordered behind this one by events. Throws
  /// what it throws, and DeviceError where something cannot be captured; the stream is usable then.
  static CudaGraph capture(const CudaStream& stream, const std::function<void()>& launch_all,
                           ProgrammaticEdges programmatic_edges = ProgrammaticEdges::kKept);

  void launch(const CudaStream& stream) const;
  size_t num_nodes() const { return num_nodes_; }
  /// Of ProgrammaticEdges::kRemoved: pairs of kernels whose second one would have started early.
  size_t num_removed_edges() const { return num_removed_edges_; }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
  size_t num_nodes_ = 0, num_removed_edges_ = 0;
};

}  // namespace halley
