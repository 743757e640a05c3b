#include "halley/cuda/runtime/cuda_graph.h"

#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};

}  // namespace

CudaGraph CudaGraph::capture(const CudaStream& stream, const std::function<void()>& launch_all) {
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
             "begin of a capture");
  cudaGraph_t captured = nullptr;
  try {
    launch_all();
  } catch (...) {
    static_cast<void>(cudaStreamEndCapture(stream.get(), &captured));
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();  // the exception says what went wrong
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream.get(), &captured), "end of a capture");
  const std::unique_ptr<CUgraph_st, DestroyGraph> owner(captured);
  CudaGraph graph;
  check_cuda(cudaGraphGetNodes(captured, nullptr, &graph.num_nodes_), "nodes of a graph");
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, captured, 0), "instantiation of a graph");
  graph.graph_.reset(executable);
  return graph;
}

void CudaGraph::launch(const CudaStream& stream) const {
  check_cuda(cudaGraphLaunch(graph_.get(), stream.get()), "launch of a graph");
}

}  // namespace halley
