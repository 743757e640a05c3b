#include "halley/kernels/gemm/kernel_choice.h"

#include <algorithm>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

const GemmKernel* find_by_name(const std::string& name) {
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

std::string all_names() {
  std::string names;
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    names += str(names.empty() ? "" : ", ", kernel.name);
  }
  return names;
}

void check_name(const std::string& name) {
  if (find_by_name(name) != nullptr) return;
  throw InputError(str("kernel: expected one of ", all_names(), ", got ", quote(name),
                       ". `halley inspect` shows what a model runs on."));
}

/// Whether it is one of those among which the problem's kernel is chosen.
bool is_for(const GemmKernel& kernel, const GemmProblem& problem) {
  return kernel.w_layout == problem.w_layout && kernel.precision == problem.precision;
}

std::string describe(const GemmProblem& problem) {
  std::string text = str("a ", problem.w_layout, " weight [", problem.N, ", ", problem.K, "]");
  if (is_quantized(problem.w_layout)) {
    text += str(" in groups of ", problem.group_size, ", activations ", problem.activation);
  }
  if (has_low_precision(problem.w_layout)) text += str(" in ", problem.precision, " precision");
  return text;
}

}  // namespace

void check_kernel_names(const KernelDemands& demands) {
  if (!demands.forced.empty()) check_name(demands.forced);
  for (const std::string& name : demands.required) check_name(name);
}

KernelChoice choose_gemm_kernel(const GemmProblem& problem, const KernelDemands& demands) {
  check_kernel_names(demands);
  KernelChoice choice;
  const GemmKernel* forced = demands.forced.empty() ? nullptr : find_by_name(demands.forced);
  const bool is_forced = forced != nullptr && is_for(*forced, problem);
  if (is_forced) {
    const std::string reason = forced->why_not(problem);
    if (!reason.empty()) {
      throw InputError(str("kernel ", forced->name, ": expected it to run ", describe(problem),
                           ", got a rejection: ", reason, ". Force another, or none."));
    }
  }
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (!is_for(kernel, problem)) continue;
    const std::string reason =
        is_forced && &kernel != forced ? str("another was forced") : kernel.why_not(problem);
    if (reason.empty()) {
      choice.kernel = &kernel;
      break;
    }
    choice.rejections.push_back(str(kernel.name, ": ", reason));
  }
  if (choice.kernel == nullptr) {
    throw UnsupportedError(str("gemm: expected a kernel for ", describe(problem), ", got none (",
                               choice.rejections, "). Use another quantization of this model."));
  }
  const auto& required = demands.required;
  if (!required.empty() &&
      std::find(required.begin(), required.end(), choice.kernel->name) == required.end()) {
    throw InputError(str("kernel: expected one of ", required, " to run ", describe(problem),
                         ", got ", choice.kernel->name, " (rejected: ", choice.rejections,
                         "). Require others, or none."));
  }
  return choice;
}

}  // namespace halley
