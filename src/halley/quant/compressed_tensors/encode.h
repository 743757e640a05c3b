// Writes compressed-tensors files: packed integers, 8-bit integers and 8-bit floats, and the
// declaration in config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"
#include "halley/quant/compressed_tensors/scheme_config.h"

namespace halley {

/// Writes pack-quantized, of 4 or 8 bits: <name>.weight_packed, .weight_scale f16 and
/// .weight_shape; .weight_zero_point where asymmetric. Throws UnsupportedError for other bits, for
/// groups that do not divide the inputs and for groups whose inputs are not consecutive (actorder
/// group), which compressed-tensors no longer supports.
std::vector<CheckpointTensor> encode_pack_quantized(const std::string& name,
                                                    const QuantizedWeight& weight);

/// Writes int-quantized: <name>.weight i8 and per-channel .weight_scale f32 [N, 1]; activations are
/// quantized to 8 bits with dynamic per-token scales. Throws UnsupportedError unless the weight has
/// 8 bits, is symmetric and has one group.
std::vector<CheckpointTensor> encode_int_quantized(const std::string& name,
                                                   const QuantizedWeight& weight);

/// The quantization_config of a checkpoint whose quantized layers all have this storage; the
/// tensors of kFloat8 are those of encode_float8() (quant/stored). Layers with settings of their
/// own are in a group of their setting, layers left out in `ignore`.
OrderedJson compressed_tensors_declaration(const WrittenFormat& format, CodeStorage storage);

}  // namespace halley
