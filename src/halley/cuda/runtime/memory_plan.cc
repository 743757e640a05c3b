#include "halley/cuda/runtime/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

std::string gib(double num_bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GiB", num_bytes / double{1 << 30});
  return text;
}

std::string gib(size_t num_bytes) { return gib(static_cast<double>(num_bytes)); }

}  // namespace

GpuMemoryPlan plan_gpu_memory(const GpuMemoryDemand& demand) {
  if (!(demand.utilization > 0 && demand.utilization <= 1)) {
    throw InputError(
        str("--gpu-memory-utilization: expected above 0, at most 1, got ", demand.utilization));
  }
  HALLEY_CHECK(demand.kv_page_bytes > 0 && demand.num_pages_min > 0, demand.kv_page_bytes);
  GpuMemoryPlan plan;
  plan.budget_bytes =
      static_cast<size_t>(static_cast<double>(demand.total_bytes) * demand.utilization);
  if (plan.budget_bytes > demand.free_bytes) {
    throw DeviceError(str("GPU memory: expected ", gib(plan.budget_bytes), " free (",
                          demand.utilization, " of ", gib(demand.total_bytes), "), got ",
                          gib(demand.free_bytes),
                          ". Lower --gpu-memory-utilization, or stop other programs on the GPU."));
  }
  const auto kv_bytes_min =
      checked_mul(demand.kv_page_bytes, static_cast<size_t>(demand.num_pages_min));
  const auto fixed = checked_add(demand.weight_bytes, demand.workspace_bytes);
  const auto least = kv_bytes_min && fixed ? checked_add(*fixed, *kv_bytes_min) : std::nullopt;
  if (!least || *least > plan.budget_bytes) {
    throw DeviceError(str(
        "GPU memory: expected room for weights (", gib(demand.weight_bytes), "), workspace (",
        gib(demand.workspace_bytes), ") and the KV cache of one sequence (",
        gib(static_cast<double>(demand.kv_page_bytes) * static_cast<double>(demand.num_pages_min)),
        "), got ", gib(plan.budget_bytes),
        ". Lower --max-model-len or --max-num-batched-tokens, choose a smaller --kv-dtype, "
        "raise --gpu-memory-utilization, or use a smaller model."));
  }
  plan.num_pages = static_cast<int64_t>((plan.budget_bytes - *fixed) / demand.kv_page_bytes);
  if (demand.num_pages_max > 0) plan.num_pages = std::min(plan.num_pages, demand.num_pages_max);
  plan.kv_bytes = static_cast<size_t>(plan.num_pages) * demand.kv_page_bytes;
  return plan;
}

}  // namespace halley
