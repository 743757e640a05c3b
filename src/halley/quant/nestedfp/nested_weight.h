// Reads a layer's weight from two planes of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// The version of the format that is read and written.
inline constexpr int64_t kNestedVersion = 1;

std::string nested_upper_name(const std::string& layer);
std::string nested_lower_name(const std::string& layer);

/// Whether at least one of the part's two planes is there.
bool has_nested_planes(const TensorSource& source, const LinearSpec::Part& part);

/// <part>.weight_upper f8_e4m3 and .weight_lower u8, both [stored_rows, K]. Throws CheckpointError
/// where one is missing or of another type or shape, or the weight is there a second time;
/// check_data() where two bytes are not an f16 value of magnitude at most 1.75.
std::unique_ptr<StoredWeight> open_nested_weight(const TensorSource& source,
                                                 const LinearSpec::Part& part, int64_t in_features);

/// The tensors that open_nested_weight() reads.
std::vector<TensorInfo> expected_nested_tensors(const LinearSpec::Part& part, int64_t in_features);

}  // namespace halley
