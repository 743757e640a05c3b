#include "halley/cuda/attention/prefill_table.h"

#include "halley/base/str.h"

namespace halley {

std::string_view name_of(PrefillKernel kernel) {
  for (const PrefillKernelRow& row : kPrefillKernels) {
    if (row.kernel == kernel) return row.name;
  }
  return {};
}

std::string why_not_prefill_kernel(PrefillKernel kernel, const AttentionProblem& problem,
                                   const KvPageLayout& layout) {
  if (kernel == PrefillKernel::kMma) return {};
  if (layout.dtype != KvDType::kF16 && layout.dtype != KvDType::kBf16) {
    return str("a KV cache of ", layout.dtype, "; f16 and bf16 are served");
  }
  if (layout.head_dim > 128) return str("head_dim ", layout.head_dim, " is above 128");
  if (!(problem.scale > 0)) return str("scale ", problem.scale, " is not above 0");
  return {};
}

PrefillKernel choose_prefill_kernel(const AttentionProblem& problem, const KvPageLayout& layout) {
  for (const PrefillKernelRow& row : kPrefillKernels) {
    if (why_not_prefill_kernel(row.kernel, problem, layout).empty()) return row.kernel;
  }
  return PrefillKernel::kMma;
}

}  // namespace halley
