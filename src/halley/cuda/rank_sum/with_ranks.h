// Dispatch from types and numbers of ranks known at run time to instances of kernels.
#pragma once

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/base/check.h"
#include "halley/core/dtype.h"
#include "halley/cuda/rank_sum/exchange_args.h"

namespace halley::cuda {

/// Calls body(std::type_identity<__half | __nv_bfloat16>).
template <typename Body>
void with_exchanged_type(DType dtype, const Body& body) {
  if (dtype == DType::kF16) return body(std::type_identity<__half>());
  HALLEY_CHECK(dtype == DType::kBf16, name_of(dtype));
  body(std::type_identity<__nv_bfloat16>());
}

/// Calls body(integral_constant of a number of ranks that is at least this one).
template <typename Body>
void with_ranks_max(int num_ranks, const Body& body) {
  if (num_ranks <= 2) return body(std::integral_constant<int, 2>());
  if (num_ranks <= 4) return body(std::integral_constant<int, 4>());
  body(std::integral_constant<int, kExchangeRanksMax>());
}

}  // namespace halley::cuda
