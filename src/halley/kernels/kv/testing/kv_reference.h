// Elements of the KV cache one by one, for the references that kernels are compared with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/kernels/kv/kv_dtype.h"

namespace halley {

/// Slow, f64, obvious: element `index` of a row, as kv_cache_view.h defines it. `scale` is not
/// looked at where the type has none.
double kv_element(KvDType dtype, const std::byte* data, const std::byte* scale, int64_t index);

/// The number that 8 bits of e4m3 are: sign, 4 bits of exponent (bias 7), 3 of mantissa; no
/// infinity, NaN where all but the sign are set (OCP 8-bit floating point, revision 1.0).
double e4m3_value(uint8_t bits);

}  // namespace halley
