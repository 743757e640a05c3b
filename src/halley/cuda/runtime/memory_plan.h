// The division of a GPU's memory before anything is loaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halley {

struct GpuMemoryDemand {
  size_t total_bytes = 0;      // of the GPU
  size_t free_bytes = 0;       // of them now
  double utilization = 0.9;    // fraction of the total that this process may use, (0, 1]
  size_t weight_bytes = 0;     // packed weights
  size_t workspace_bytes = 0;  // of the largest step
  size_t kv_page_bytes = 0;    // one page in all layers; > 0
  int64_t num_pages_min = 1;   // for one sequence of the longest length
  int64_t num_pages_max = 0;   // upper bound of use; 0: no limit
};

struct GpuMemoryPlan {
  size_t budget_bytes = 0;  // for everything
  size_t kv_bytes = 0;
  int64_t num_pages = 0;
};

/// The KV cache gets what weights and workspace leave. Memory that CUDA itself, code and graphs
/// take is not planned: it must fit in the part that `utilization` leaves. Throws DeviceError with
/// the breakdown if weights, workspace and num_pages_min pages do not fit, or if other programs use
/// memory of the budget; InputError for a utilization out of range.
GpuMemoryPlan plan_gpu_memory(const GpuMemoryDemand& demand);

}  // namespace halley
