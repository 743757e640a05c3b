// The tensors of one part in QServe's layout: 4-bit codes in tiles of 32 x 32, with one or two
// levels of scales.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Inputs that share a scale of the second level.
inline constexpr int64_t kTiledGroup = 128;

/// <part>.qweight, s1_scales and s1_szeros; in groups s1_scales, s2_scales and s2_zeros. Throws
/// CheckpointError where one is missing or of another type or shape; UnsupportedError where the
/// size is not one of whole tiles; check_data() where a scale is not finite or zero, or not
/// positive on the second level. Warns where codes of the second level leave 8 bits.
std::unique_ptr<StoredWeight> open_tiled_weight(const TensorSource& source,
                                                const LinearSpec::Part& part, int64_t in_features,
                                                bool is_grouped);

/// The tensors that open_tiled_weight() reads.
std::vector<TensorInfo> expected_tiled_tensors(const LinearSpec::Part& part, int64_t in_features,
                                               bool is_grouped);

}  // namespace halley
