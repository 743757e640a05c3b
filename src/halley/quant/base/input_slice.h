// Some of a weight's inputs, as one of several ranks multiplies them.
#pragma once

#include <cstdint>
#include <memory>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Returns the unit of slices of a weight with `in_features` inputs: cut at multiples of it, no
/// group of scales and no block of activations is in two slices.
int64_t input_unit(const WeightDesc& desc, int64_t in_features);

/// The weight of the packed inputs `range`, as if the checkpoint had no others. So packing a slice
/// gives the same values as slicing what was packed. A group that the range cuts becomes smaller
/// ones. Throws UnsupportedError where it cuts a block of inputs whose activations share a scale.
std::unique_ptr<StoredWeight> slice_inputs(std::unique_ptr<StoredWeight> whole,
                                           const LinearSpec::Part& part, int64_t in_features,
                                           const InputRange& range);

}  // namespace halley
