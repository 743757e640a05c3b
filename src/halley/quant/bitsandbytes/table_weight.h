// Weights of 4 bits that name one of 16 numbers: NF4 and FP4 of bitsandbytes.
#pragma once

#include <memory>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Whether the part's weight is one.
bool has_table_weight(const TensorSource& source, const LinearSpec::Part& part);

/// The weight as floats of the type that the file says, f16, bf16 or f32: no kernel multiplies
/// these 4 bits. They are made when dense_rows() is first called. Throws CheckpointError where a
/// tensor is missing or wrong, dense_rows() where a scale or a number of the table is not finite.
std::unique_ptr<StoredWeight> open_table_weight(const TensorSource& source,
                                                const LinearSpec::Part& part, int64_t in_features);

}  // namespace halley
