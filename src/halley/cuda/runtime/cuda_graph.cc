#include "halley/cuda/runtime/cuda_graph.h"

#include <vector>

#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};

/// Programmatic edges of a graph: the dependent kernel need not wait for the end of the first.
struct ProgrammaticEdgeList {
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;
};

ProgrammaticEdgeList early_edges(cudaGraph_t graph) {
  size_t count = 0;
  check_cuda(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), "edges of a graph");
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0) {
    check_cuda(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count),
               "edges of a graph");
  }
  ProgrammaticEdgeList early;
  for (size_t i = 0; i < count; ++i) {
    if (data[i].type != cudaGraphDependencyTypeProgrammatic) continue;
    early.from.push_back(from[i]);
    early.to.push_back(to[i]);
    early.data.push_back(data[i]);
  }
  return early;
}

/// Replaces programmatic edges by full dependencies. Returns their number.
size_t remove_programmatic_edges(cudaGraph_t graph) {
  const ProgrammaticEdgeList edges = early_edges(graph);
  const size_t count = edges.data.size();
  if (count == 0) return 0;
  check_cuda(cudaGraphRemoveDependencies(graph, edges.from.data(), edges.to.data(),
                                         edges.data.data(), count),
             "edges of a graph");
  check_cuda(cudaGraphAddDependencies(graph, edges.from.data(), edges.to.data(), nullptr, count),
             "edges of a graph");
  return count;
}

}  // namespace

CudaGraph CudaGraph::capture(const CudaStream& stream, const std::function<void()>& launch_all,
                             ProgrammaticEdges programmatic_edges) {
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
  if (programmatic_edges == ProgrammaticEdges::kRemoved) {
    graph.num_removed_edges_ = remove_programmatic_edges(captured);
  }
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, captured, 0), "instantiation of a graph");
  graph.graph_.reset(executable);
  return graph;
}

void CudaGraph::upload(const CudaStream& stream) const {
  check_cuda(cudaGraphUpload(graph_.get(), stream.get()), "upload of a graph");
}

void CudaGraph::launch(const CudaStream& stream) const {
  check_cuda(cudaGraphLaunch(graph_.get(), stream.get()), "launch of a graph");
}

}  // namespace halley
