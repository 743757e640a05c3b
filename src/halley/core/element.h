// One element of a tensor as f32, whatever numeric type it has.
#pragma once

#include <cstddef>

#include "halley/core/dtype.h"

namespace halley {

/// The element at `from`, which may be any address. The type is f32, f16, bf16, f8_e4m3, i8 or i32;
/// exact, but for an i32 beyond 2^24, which is rounded to nearest even.
float element_to_f32(DType dtype, const std::byte* from);

}  // namespace halley
