// The SIMD part of write_kv: f32 values into the cache's element type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/dtype.h"

namespace halley {

/// Rounds `size` values to nearest even into `to`, which need not be aligned for vectors.
/// Requires  dtype f32, f16 or bf16
void store_kv_row(DType dtype, const float* from, size_t size, std::byte* to);

}  // namespace halley
