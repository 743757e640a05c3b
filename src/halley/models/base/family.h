// A model family: the mapping from its config.json and weight names to DecoderConfig; and the
// pieces that most families share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// The inputs of a family's mapping.
struct FamilyInput {
  const HfConfig& config;
  /// For mappings that depend on tensor names (experts fused or one by one); null: published names.
  const TensorSource* tensors = nullptr;
  /// The longest sequence that will be run; 0: max_position_embeddings.
  int64_t max_length = 0;
};

/// One `model_type`. A family's folder defines constants of this type; models/all lists them.
struct ModelFamily {
  const char* model_type;
  /// Throws InputError for a bad field, UnsupportedError for an option that is not supported.
  DecoderConfig (*read)(const FamilyInput& input);
};

/// The names and defaults of shared config.json fields that differ between families.
struct ShapeFields {
  const char* norm_epsilon = "rms_norm_eps";
  double norm_epsilon_default = 1e-6;
  const char* activation = "hidden_act";
  const char* activation_default = "silu";
  const char* intermediate_size = "intermediate_size";
  const char* embedding_name = "model.embed_tokens.weight";
  /// Whether num_key_value_heads may be absent; it is then num_attention_heads.
  bool has_kv_heads_default = false;
  bool is_tied_default = false;
};

/// Sizes, norm epsilon, activation, attention scale, data type, names of embedding, final norm and
/// output layer, for models whose tensors are named as Llama's. No layers, no rotary embeddings.
DecoderConfig read_shape(const FamilyInput& input, const ShapeFields& fields);

/// Adds a rotary embedding; returns its index in decoder.ropes.
int add_rope(const FamilyInput& input, const RopeConfig& rope, DecoderConfig& decoder);

/// Which linear layers of a Llama-like block have biases.
struct LayerBiases {
  bool is_qkv_biased = false, is_o_biased = false, is_mlp_biased = false;
};

/// Layer `index` of a Llama-like model: norms, q/k/v/o and gated MLP, rotary embedding 0, no
/// window.
LayerSpec llama_layer(const DecoderConfig& decoder, int64_t index, const LayerBiases& biases);

/// "model.layers.<index>."
std::string layer_prefix(int64_t index);

/// A linear layer over whole tensors, one below the other.
LinearSpec linear(const std::vector<std::pair<std::string, int64_t>>& parts, int64_t in_features,
                  bool has_bias = false);

/// gate_up and down of a gated MLP under `prefix`, with intermediate size F.
MlpSpec gated_mlp(const DecoderConfig& decoder, const std::string& prefix, int64_t F,
                  bool is_biased);

/// Experts of one MLP and their names in published checkpoints.
struct ExpertNames {
  std::string block;  // "model.layers.0.mlp."; the router is block + "gate"
  const char* gate;   // of block + "experts.<e>."
  const char* up;
  const char* down;
  /// The block's name where experts are fused in transformers 5's own names.
  std::string fused_block;
};
struct ExpertSizes {
  int64_t num_experts = 0, num_experts_per_token = 0, intermediate_size = 0;
  bool is_normalized = true;
};

/// A mixture of experts: one tensor per expert, or all in [E, 2F, K] and [E, K, F] where
/// `input.tensors` holds such.
MlpSpec experts_mlp(const FamilyInput& input, const DecoderConfig& decoder,
                    const ExpertNames& names, const ExpertSizes& sizes);

/// num_experts and num_experts_per_tok, checked against each other and against limits.
ExpertSizes read_expert_sizes(const FamilyInput& input, const DecoderConfig& decoder,
                              std::string_view num_experts_field);

/// One entry a layer from `layer_types`: is it "sliding_attention"? Empty where the field is
/// absent. Throws UnsupportedError for another type than that and "full_attention", InputError for
/// another number of entries than layers.
std::vector<bool> read_layer_types(const HfConfig& config, int64_t num_layers);

/// Positions that a token sees, from `sliding_window`: 0 where it is null.
/// `fallback` is what the family assumes where the field is absent.
int64_t read_window(const HfConfig& config, int64_t fallback);

/// Throws UnsupportedError "<file>: field '...': expected <expected>, got <got>. ..."
[[noreturn]] void unsupported_field(const HfConfig& config, std::string_view field,
                                    const std::string& expected, const std::string& got);

/// Throws UnsupportedError where the boolean `field` (absent: `supported`) has another value.
void require_boolean(const HfConfig& config, std::string_view field, bool supported);

}  // namespace halley
