// A captured sequence of launches that the GPU starts as one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

#include "halley/cuda/runtime/cuda_stream.h"

namespace halley {

/// Move-only. Launches use the addresses of the capture.
class CudaGraph {
 public:
  /// kKept: PDL stays in effect inside the graph (launch.cuh). kRemoved: each kernel waits for
  /// the end of those ahead of it.
  enum class ProgrammaticEdges { kKept, kRemoved };

  /// Captures the launches that `launch_all` queues on the stream, without running them. It must
  /// not wait for the GPU, allocate, or use another stream that is not ordered by events. Throws
  /// what it throws, and DeviceError if something cannot be captured; the stream remains usable.
  static CudaGraph capture(const CudaStream& stream, const std::function<void()>& launch_all,
                           ProgrammaticEdges programmatic_edges = ProgrammaticEdges::kKept);

  /// Copies the graph to the GPU's memory, which else the first launch() does.
  void upload(const CudaStream& stream) const;
  void launch(const CudaStream& stream) const;
  size_t num_nodes() const { return num_nodes_; }
  /// With ProgrammaticEdges::kRemoved: programmatic edges that were replaced.
  size_t num_removed_edges() const { return num_removed_edges_; }

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
  size_t num_nodes_ = 0, num_removed_edges_ = 0;
};

}  // namespace halley
