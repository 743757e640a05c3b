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
  /// The whole config.json around the text model's, which may declare the weights' type; or null.
  const HfConfig* outer = nullptr;

  /// `model_type` of the whole.
  std::string family() const { return (outer != nullptr ? *outer : config).model_type(); }
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
  /// Transformers' values where these fields are absent; 0: they are required, or head_dim is
  /// hidden_size / num_attention_heads.
  int64_t vocab_size_default = 0, num_heads_default = 0, num_kv_heads_default = 0;
  int64_t head_dim_default = 0, max_positions_default = 0;
};

/// Sizes, norm epsilon, activation, attention scale, data type, names of embedding, final norm and
/// output layer, for models whose tensors are named as Llama's. No layers, no rotary embeddings.
DecoderConfig read_shape(const FamilyInput& input, const ShapeFields& fields);

/// The output layer is the embedding's table, or `lm_head`.
void set_tied(bool is_tied, DecoderConfig& decoder);

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

/// The norm whose weight is the tensor name + ".weight", without bias.
NormSpec norm_of(const std::string& name);

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

/// Names of the tensors in which all experts of one MLP are: the router without ".weight", the
/// others whole.
struct FusedExpertNames {
  std::string router, gate_up, down;
};

/// A mixture of experts, all in [E, 2F, K] and [E, K, F].
MlpSpec fused_experts_mlp(const DecoderConfig& decoder, const FusedExpertNames& names,
                          const ExpertSizes& sizes);

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

/// read_layer_types(), or where the field is absent every `pattern`-th layer full and the others
/// with a window.
std::vector<bool> read_layer_types_or(const HfConfig& config, int64_t num_layers, int64_t pattern);

/// Gives these layers the window of `sliding_window` (absent: `fallback`). Throws InputError where
/// it is null and a layer has one.
void set_windows(const HfConfig& config, const std::vector<bool>& is_sliding, int64_t fallback,
                 DecoderConfig& decoder);

/// Windows that `use_sliding_window` switches on (absent: off), of `sliding_window` (absent:
/// `fallback`) positions; 0 where they are off.
int64_t read_switched_window(const HfConfig& config, int64_t fallback);

/// Gives `window` to the layers that layer_types names, or to `is_sliding` where the field is
/// absent. Throws InputError where layer_types names one and `window` is 0.
void set_switched_windows(const HfConfig& config, int64_t window, std::vector<bool> is_sliding,
                          DecoderConfig& decoder);

/// Positions that a token sees, from `sliding_window`: 0 where it is null.
/// `fallback` is what the family assumes where the field is absent.
int64_t read_window(const HfConfig& config, int64_t fallback);

/// Throws UnsupportedError "<file>: field '...': expected <expected>, got <got>. ..."
[[noreturn]] void unsupported_field(const HfConfig& config, std::string_view field,
                                    const std::string& expected, const std::string& got);

/// A factor. Throws InputError where it is not finite and positive.
double read_positive(const HfConfig& config, std::string_view field, double fallback);

/// Throws UnsupportedError where the boolean `field` (absent: `supported`) has another value.
void require_boolean(const HfConfig& config, std::string_view field, bool supported);

}  // namespace halley
