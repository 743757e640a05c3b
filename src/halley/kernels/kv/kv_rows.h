// The SIMD part of write_kv: one row of f32 values into the cache's element type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

/// Stores `size` >= 1 values as kv_cache_view.h defines it. Memory need not be aligned.
/// `fixed_scale` is that of fp8; 0: from the row.
void store_kv_row(KvDType dtype, const float* from, size_t size, float fixed_scale, KvRow to);

}  // namespace halley
