// How a GPU's memory is divided before anything is loaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halley {

struct GpuMemoryDemand {
  size_t total_bytes = 0;      // of the GPU
  size_t free_bytes = 0;       // of them now
  double utilization = 0.9;    // part of the total that this process may use, (0, 1]
  size_t weight_bytes = 0;     // packed weights
  size_t workspace_bytes = 0;  // of the largest step
  size_t kv_page_bytes = 0;    // one page in all layers; > 0
  int64_t num_pages_min = 1;   // for one sequence of the longest length
  int64_t num_pages_max = 0;   // what can be used at all; 0: no limit
};

struct GpuMemoryPlan {
  size_t budget_bytes = 0;  // for everything
  size_t kv_bytes = 0;
  int64_t num_pages = 0;
};

/// The KV cache gets what weights and workspace leave. Memory that CUDA itself, code and graphs
/// take is not planned: it must lie in the part that `utilization` leaves. Throws DeviceError that
/// shows the sum where weights, workspace and num_pages_min pages do not fit, or where other
/// programs use what the budget counts on; InputError for a utilization out of range.
GpuMemoryPlan plan_gpu_memory(const GpuMemoryDemand& demand);

}  // namespace halley
