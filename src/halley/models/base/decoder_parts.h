// The parts of a decoder that have weights, in the order in which they run: for planning, for
// loading in one order, for listing a checkpoint's tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/models/base/decoder_config.h"
#include "halley/quant/base/format.h"

namespace halley {

enum class PartKind : uint8_t { kEmbedding, kPositions, kNorm, kLinear };

/// One part. The pointers lead into the DecoderConfig that it was listed from.
struct DecoderPart {
  std::string name;  // "embedding", "layers.0.qkv", "layers.0.experts.3.down"
  PartKind kind = PartKind::kLinear;
  const LinearSpec* linear = nullptr;  // kLinear
  bool is_expert = false;              // of several, of which a row takes some
  const NormSpec* norm = nullptr;      // kNorm
  std::string table_name;              // kEmbedding, kPositions: the tensor [.., hidden_size]
  int64_t num_rows = 0;                // of the tensor; for a norm its size
  InputRange rows = {};                // of a table: those that are loaded
};

std::vector<DecoderPart> list_decoder_parts(const DecoderConfig& config);

/// All tensors that a checkpoint of this decoder holds, sorted by name: linear layers as the scheme
/// has them (in full precision without one), everything else, biases, routers and the output layer
/// included, in the type that config.json declares.
std::vector<TensorInfo> list_decoder_tensors(const DecoderConfig& config,
                                             const QuantScheme* scheme = nullptr);

}  // namespace halley
