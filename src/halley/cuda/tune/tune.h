// Which kernels have plans that are measured, and how: the table behind `halley tune` and --tune.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/tuning/tuning_table.h"

namespace halley::cuda {

struct TunedKernel {
  std::string_view name;  // TunedGemm::kernel
  std::string_view what;
  DType x_dtype = DType::kF16;  // of activations
  /// Layers whose kernel's name, as inspect shows it, begins so run it for the M that it takes.
  std::string_view model_kernel;
  bool has_groups = false;  // TunedGemm::group_size is 32, 64 or 128
  int inputs_multiple = 1;  // of K
  /// The plan in words. Empty: the settings are none of the kernel's, or do not fit the GEMM or the
  /// device.
  std::string (*describe)(const TunedPlan& plan, const CudaDeviceInfo& device);
  /// Measures the fastest plan of the GEMM for each number of rows that the kernel takes.
  std::vector<TunedPlan> (*tune)(const CudaContext& context, const TunedGemm& gemm,
                                 const std::vector<int64_t>& rows, const OnTunedPlan& on_plan);
};

/// All of them.
std::span<const TunedKernel> tuned_kernels();
/// Null: there is none of this name.
const TunedKernel* find_tuned_kernel(std::string_view name);

/// A GEMM of the kernel. `group_size` is that of the weight's parameters, 0 or K where there are no
/// groups; kernels without groups do not read it.
TunedGemm tuned_gemm_of(const TunedKernel& kernel, int64_t N, int64_t K, int64_t group_size);

/// M for which plans are measured: each plan serves M down to half its rows.
std::span<const int64_t> tuned_rows();

/// Throws InputError, which names `where` and the plan, where a kernel or a plan of the table does
/// not exist on the device.
void check_tuned_plans(const TuningTable& table, const CudaDeviceInfo& device,
                       const std::string& where);

/// Measures plans of GEMMs, which name kernels of the table. Takes device memory of about three L2
/// caches and two of the largest weight, and a workspace.
std::vector<TunedPlan> tune_gemms(const CudaDeviceInfo& device, std::span<const TunedGemm> gemms,
                                  const std::vector<int64_t>& rows, const OnTunedPlan& on_plan);

}  // namespace halley::cuda
