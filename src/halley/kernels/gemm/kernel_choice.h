// The choice of a kernel for a weight, with what the user demands of it.
#pragma once

#include <string>
#include <vector>

#include "halley/kernels/gemm/gemm.h"

namespace halley {

/// Names are those of the table, "gemm_w4a8_hwy".
struct KernelDemands {
  /// Weights in the layout that this kernel reads run on it, or not at all (in its precision, where
  /// they have two). Empty: no demand.
  std::string forced;
  /// Every layer must run on one of these. Empty: no demand.
  std::vector<std::string> required;
};

/// Throws InputError that lists the kernels where a name is not one of theirs.
void check_kernel_names(const KernelDemands& demands);

struct KernelChoice {
  const GemmKernel* kernel = nullptr;
  /// Better-placed kernels for this layout and why each was rejected.
  std::vector<std::string> rejections;
};

/// The first kernel of the table that runs the problem, or the forced one. Throws UnsupportedError
/// that lists the reasons where none does; InputError where the forced one cannot or the chosen one
/// is not among those required.
KernelChoice choose_gemm_kernel(const GemmProblem& problem, const KernelDemands& demands = {});

}  // namespace halley
