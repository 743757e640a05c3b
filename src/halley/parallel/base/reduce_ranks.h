// The sum and the maximum of what ranks have, in one order, so that every rank gets the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/core/dtype.h"

namespace halley {

enum class Reduction : uint8_t { kSum, kMax };

/// results[*][i] = the reduction of sources[r][i] over r, in f32 in ascending order of r, rounded
/// once. Each is [count] of `dtype` (f32, f16 or bf16) at any address; results may be sources.
void reduce_ranks(Reduction reduction, DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> results, size_t count);

}  // namespace halley
