// Dispatch from an element type known at run time to a CUDA type.
#pragma once

#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/base/check.h"
#include "halley/core/dtype.h"

namespace halley::cuda {

/// Calls body(std::type_identity<float | __half | __nv_bfloat16>).
template <typename Body>
void with_float_type(DType dtype, const Body& body) {
  if (dtype == DType::kF32) return body(std::type_identity<float>());
  if (dtype == DType::kF16) return body(std::type_identity<__half>());
  HALLEY_CHECK(dtype == DType::kBf16, name_of(dtype));
  body(std::type_identity<__nv_bfloat16>());
}

}  // namespace halley::cuda
