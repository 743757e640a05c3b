#include "halley/models/all/gpu_tuning.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/tune/tune.h"
#include "halley/cuda/tuning/tuned_plans.h"
#include "halley/cuda/tuning/tuning_cache.h"

namespace halley {
namespace {

using cuda::TunedGemm;
using cuda::TuningTable;

bool is_run_by(const cuda::TunedKernel& kernel, std::string_view layer_kernel,
               DType activation_dtype) {
  const bool is_rounded = kernel.x_dtype != DType::kF16 && kernel.x_dtype != DType::kBf16;
  return layer_kernel.starts_with(kernel.model_kernel) &&
         (is_rounded || kernel.x_dtype == activation_dtype);
}

/// Reads the table of a file that the program wrote or was given, and checks every plan.
TuningTable read_table(const std::filesystem::path& path, const CudaDeviceInfo& device) {
  TuningTable table = cuda::read_tuning_table(path, device.name, device.num_sms);
  cuda::check_tuned_plans(table, device, path.string());
  return table;
}

/// Reads the file, or the cache: nothing is measured.
TuningTable known_plans(const LoadOptions& options, const CudaDeviceInfo& device,
                        const std::filesystem::path& cache, ModelPlan& plan) {
  if (!options.tuned_plans.empty()) {
    TuningTable table = read_table(options.tuned_plans, device);
    plan.tuned_plans = str(table.plans().size(), " plans of ", options.tuned_plans);
    return table;
  }
  TuningTable none(device.name, device.num_sms, {});
  std::error_code error;
  if (cache.empty() || !std::filesystem::exists(cache, error)) return none;
  try {
    TuningTable table = read_table(cache, device);
    plan.tuned_plans = str(table.plans().size(), " plans of ", cache.string());
    return table;
  } catch (const InputError& problem) {
    plan.warnings.push_back(
        str("measured plans are left out: ", problem.what(), " --tune measures them anew."));
    return none;
  }
}

bool is_measured(const TuningTable& table, const CudaDeviceInfo& device, const TunedGemm& gemm) {
  if (table.has(gemm)) return true;
  const auto built_in = cuda::built_in_tuned_plans();
  return std::any_of(built_in.begin(), built_in.end(), [&](const TuningTable& each) {
    return each.device() == device.name && each.num_sms() == device.num_sms && each.has(gemm);
  });
}

/// Measures the GEMMs that have no plans, and keeps the plans in the cache.
void measure_missing(const CudaDeviceInfo& device, const std::filesystem::path& cache,
                     TuningTable& table, ModelPlan& plan) {
  std::vector<TunedGemm> missing = tuned_gemms_of(plan);
  std::erase_if(missing, [&](const TunedGemm& gemm) { return is_measured(table, device, gemm); });
  if (missing.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  const auto rows = cuda::tuned_rows();
  std::vector<cuda::TunedPlan> plans =
      cuda::tune_gemms(device, missing, {rows.begin(), rows.end()}, [](const cuda::TunedPlan&) {});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  plan.tuned_plans =
      str(plan.tuned_plans, plan.tuned_plans.empty() ? "" : ", ", plans.size(), " plans of ",
          missing.size(), " GEMMs measured in ", static_cast<int64_t>(seconds.count() + 0.5), " s");
  if (!cache.empty()) {
    cuda::add_to_tuning_cache(cache, TuningTable(device.name, device.num_sms, plans));
    plan.tuned_plans += str(", kept in ", cache.string());
  }
  table.merge(std::move(plans));
}

}  // namespace

std::vector<TunedGemm> tuned_gemms_of(const ModelPlan& plan) {
  std::set<TunedGemm> gemms;
  const auto add = [&](std::string_view layer_kernel, const GpuLinearPlan& linear,
                       int64_t group_size) {
    if (layer_kernel.empty()) return;
    for (const cuda::TunedKernel& kernel : cuda::tuned_kernels()) {
      if (!is_run_by(kernel, layer_kernel, plan.activation_dtype)) continue;
      if (linear.in_features % kernel.inputs_multiple != 0) continue;
      gemms.insert(tuned_gemm_of(kernel, linear.out_features, linear.in_features, group_size));
    }
  };
  for (const ModelPart& part : plan.parts) {
    for (size_t i = 0; i < part.gpu_plans.size(); ++i) {
      const GpuLinearPlan& linear = part.gpu_plans[i];
      const int64_t group_size = i < part.plans.size() ? part.plans[i].weight.group_size : 0;
      add(linear.kernel, linear, group_size);
      add(linear.low_kernel, linear, group_size);
    }
  }
  return {gemms.begin(), gemms.end()};
}

void prepare_tuned_plans(const LoadOptions& options, const CudaDeviceInfo& device,
                         ModelPlan& plan) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::filesystem::path cache = cuda::tuning_cache_path(device.name, device.num_sms);
  TuningTable table = known_plans(options, device, cache, plan);
  if (options.tune) measure_missing(device, cache, table, plan);
  cuda::set_tuned_plans(std::move(table));
}

}  // namespace halley
