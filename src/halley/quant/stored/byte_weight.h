// Reads weights that are stored as one byte a value, row by row, with scales per tensor, channel,
// group or block: 8-bit floats and 8-bit integers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"
#include "halley/quant/stored/scale_grid.h"

namespace halley {

/// The facts of such a weight that the format's module gives.
struct ByteWeightSpec {
  const char* format = "";
  /// f8_e4m3: w = scale * code. i8: w = scale * (code - zero).
  DType dtype = DType::kF8E4M3;
  std::string scale_name;
  int64_t block_rows = 1;  // stored rows that share a scale
  int64_t group_size = 1;  // inputs that share a scale
  std::string zero_name;   // zero points of i8, shaped as the scales; empty: all zero
  ActivationQuant activation = ActivationQuant::kNone;
  std::string input_scale_name;  // of the static kinds
};

/// Opens <part>.weight [stored_rows, K] of the type, and the tensors of the spec. Throws
/// CheckpointError where one is missing or of another type or shape, or the input scale is not
/// above zero; check_data() where a scale is not finite or zero or a weight is NaN.
std::unique_ptr<StoredWeight> open_byte_weight(const TensorSource& source,
                                               const LinearSpec::Part& part, int64_t in_features,
                                               const ByteWeightSpec& spec);

/// The tensors that open_byte_weight() reads, scales in f32.
std::vector<TensorInfo> expected_byte_tensors(const LinearSpec::Part& part, int64_t in_features,
                                              const ByteWeightSpec& spec);

/// Writes the block's bytes of `rows` [out_features, K], each xor `flip`, as
/// StoredWeight::read_codes() does.
void read_byte_block(const TensorView& rows, const CodeBlock& block, uint8_t flip, uint8_t* quads);

/// The part's share of a tensor's bytes, where the tensor has as many elements for each stored row.
double share_of(const TensorInfo& info, const LinearSpec::Part& part);

}  // namespace halley
