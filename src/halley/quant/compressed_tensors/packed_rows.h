// Reads integers of 2, 3, 4 or 8 bits in i32 words along K: the storage "pack-quantized".
#pragma once

#include <memory>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"
#include "halley/quant/compressed_tensors/scheme_config.h"

namespace halley {

/// How values are packed into words. Older versions of the tool padded 3 bits, and no field says
/// which packing a file has.
enum class WordPacking : uint8_t {
  kDense,   // one stream of bits, lowest first; a value may cross two words
  kPadded,  // floor(32 / bits) values in a word, the rest of it zero
};

/// The number of words of `count` values.
int64_t num_words(int64_t count, int bits, WordPacking packing);

/// Opens <part>.weight_packed i32 [stored_rows, words], weight_scale, and where the scheme has them
/// weight_zero_point and weight_g_idx; weight_shape is checked where it is there. Throws
/// CheckpointError where one is missing, of another type or shape, or against the scheme;
/// check_data() where scales are not finite or zero, or weight_g_idx does not put group_size
/// inputs into each group.
std::unique_ptr<StoredWeight> open_packed_rows(const TensorSource& source,
                                               const LinearSpec::Part& part, int64_t in_features,
                                               const GroupScheme& scheme);

/// The tensors that open_packed_rows() needs, scales in f16.
std::vector<TensorInfo> expected_packed_tensors(const LinearSpec::Part& part, int64_t in_features,
                                                const GroupScheme& scheme);

}  // namespace halley
