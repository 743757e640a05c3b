// Writes a layer's tensors and the declaration in config.json, as docs/formats/fmpq.md has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// How the inputs of a layer are quantized.
struct FmpqInput {
  /// [K], a permutation: packed input k is the layer's input input_perm[k]. Empty: as they come.
  std::vector<int32_t> input_perm;
  int64_t num_s8_blocks = 0;  // the first ones, at most all
  float s4_clip = 1;          // in (0, 1]
};

/// Writes <name>.qweight, .scales, .block_bits, .activation_clip and, permuted, .input_order.
/// The weight's inputs are in packed order. Throws UnsupportedError unless it has 4 bits, is
/// symmetric and has groups of 128 consecutive inputs.
std::vector<CheckpointTensor> encode_fmpq(const std::string& name, const QuantizedWeight& weight,
                                          const FmpqInput& input);

/// The quantization_config. `s4_share`: the share of the model's multiply-accumulates with 4-bit
/// activations, for information. Throws UnsupportedError where the model or a layer has bits,
/// groups or zero points that the format does not have.
OrderedJson fmpq_declaration(const WrittenFormat& format, std::optional<double> s4_share = {});

}  // namespace halley
