// The SIMD part of norm.h: ranges of rows on the caller's thread.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"

namespace halley {

/// Parameters that the norms of a row share. weight and bias have one element a column; bias may be
/// null.
struct NormParameters {
  const float* weight = nullptr;
  const float* bias = nullptr;
  float weight_offset = 0;
  float epsilon = 0;
};

/// Each row of x consists of groups of `group_size` columns that are normed one by one with the
/// same weight [group_size]. y may be x.
void rms_norm_rows(const NormParameters& parameters, int64_t group_size, ConstMatrix x, Matrix y);

void layer_norm_rows(const NormParameters& parameters, ConstMatrix x, Matrix y);

void add_rows_range(ConstMatrix x, Matrix y);

}  // namespace halley
