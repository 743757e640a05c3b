// The kernels of prefill attention, and which of them serves a cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "halley/kernels/attention/attention.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

enum class PrefillKernel : uint8_t { kWgmma, kMma };

struct PrefillKernelRow {
  PrefillKernel kernel;
  std::string_view name;
};

/// In order of preference; the last one serves whatever why_not_cuda_attention() does not refuse.
inline constexpr PrefillKernelRow kPrefillKernels[] = {
    {PrefillKernel::kWgmma, "wgmma, tiles of 128 x 128"},
    {PrefillKernel::kMma, "mma, tiles of 128 x 64"},
};

std::string_view name_of(PrefillKernel kernel);

/// Empty: the kernel can. Otherwise why not: "head_dim 256 is above 128".
std::string why_not_prefill_kernel(PrefillKernel kernel, const AttentionProblem& problem,
                                   const KvPageLayout& layout);

/// The first of the table that can.
PrefillKernel choose_prefill_kernel(const AttentionProblem& problem, const KvPageLayout& layout);

}  // namespace halley
