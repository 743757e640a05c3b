// From a layer's specification to its plan and to the packed layer: parts that agree are joined
// into one weight, each weight gets its kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/kernels/gemm/kernel_choice.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/linear_op.h"

namespace halley {

/// The kernel and the layout of some consecutive outputs of a layer, planned from headers alone.
struct LinearPlan {
  std::string name;  // display_name() of the section's parts
  /// The first part's; the others agree in all but names and bytes.
  WeightDesc weight;
  int64_t out_features = 0, in_features = 0;
  double stored_bytes = 0;
  double bits_per_weight = 16;  // stored, scales and zeros included
  size_t packed_bytes = 0;
  /// Null where LinearLoading::has_cpu_kernels is false.
  const GemmKernel* kernel = nullptr;
  /// The kernel in low precision; null: the same.
  const GemmKernel* low_kernel = nullptr;
  /// Preferred kernels of both precisions that were passed over, each with its reason.
  std::vector<std::string> rejections;
  std::vector<std::string> warnings;
};

/// Seconds that loading took.
struct LoadTimes {
  double read = 0;  // the first touch of the checkpoint's bytes: from the disk, or into the map
  double pack = 0;
  double self_check = 0;
};

/// How layers are planned and loaded.
struct LinearLoading {
  const QuantScheme& scheme;
  const TensorSource& source;
  const KernelDemands& demands;
  /// Compares every kernel with values of the checkpoint (self_check.h).
  bool has_self_check = true;
  LoadTimes* times = nullptr;  // added to where set
  /// False where another device multiplies: plans then name no kernel of the CPU and need none.
  bool has_cpu_kernels = true;
};

/// One plan for each section of the layer. Throws as QuantScheme::open() and choose_gemm_kernel().
std::vector<LinearPlan> plan_linear(const LinearLoading& loading, const LinearSpec& spec);

/// Packs the layer's data, once. Throws as plan_linear(), and CheckpointError where the data are
/// wrong (StoredWeight::check_data()) or the self-check fails.
LinearOp load_linear(ExecContext& context, const LinearLoading& loading, const LinearSpec& spec);

/// The checkpoint's tensors that the layer is made of, its bias included.
std::vector<std::string> linear_tensor_names(const LinearLoading& loading, const LinearSpec& spec);

}  // namespace halley
