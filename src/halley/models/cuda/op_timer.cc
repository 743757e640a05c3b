#include "halley/models/cuda/op_timer.h"

#include <utility>

#include <cuda_runtime_api.h>

#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {

void OpTimer::record(const CudaEvent& event) const {
  if (!is_captured_) return stream_.record(event);
  // In a capture the record becomes a node of the graph, and runs at each launch.
  check_cuda(cudaEventRecordWithFlags(event.get(), stream_.get(), cudaEventRecordExternal),
             "record of an event in a graph");
}

void OpTimer::begin(std::string name) {
  ops_.push_back({.name = std::move(name)});
  record(ops_.back().begin);
}

void OpTimer::end() { record(ops_.back().end); }

std::vector<OpTime> OpTimer::times() const {
  std::vector<OpTime> times;
  for (const Op& op : ops_) {
    const float start = op.begin.milliseconds_since(ops_.front().begin);
    const float duration = op.end.milliseconds_since(op.begin);
    times.push_back(
        {.name = op.name, .start_us = 1e3 * double{start}, .duration_us = 1e3 * double{duration}});
  }
  return times;
}

}  // namespace halley::cuda
