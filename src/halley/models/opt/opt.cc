#include "halley/models/opt/opt.h"

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr int64_t kPositionOffset = 2;  // the first two rows of the position table are unused

void reject_other_variants(const HfConfig& config) {
  require_boolean(config, "do_layer_norm_before", true);
  require_boolean(config, "_remove_final_layer_norm", false);
  require_boolean(config, "layer_norm_elementwise_affine", true);
  const int64_t hidden_size = config.integer("hidden_size", 1, 1 << 20);
  const int64_t projected = config.integer_or("word_embed_proj_dim", hidden_size, 1, 1 << 20);
  if (projected != hidden_size) {
    unsupported_field(config, "word_embed_proj_dim", str("hidden_size ", hidden_size),
                      str(projected));
  }
}

NormSpec layer_norm_of(const std::string& name) {
  return {.weight_name = name + ".weight", .bias_name = name + ".bias"};
}

LayerSpec opt_layer(const DecoderConfig& decoder, int64_t index, bool has_bias) {
  const int64_t K = decoder.hidden_size, F = decoder.intermediate_size;
  const std::string prefix = str("model.decoder.layers.", index, ".");
  const std::string attention = prefix + "self_attn.";
  LayerSpec layer;
  layer.input_norm = layer_norm_of(prefix + "self_attn_layer_norm");
  layer.mlp_norm = layer_norm_of(prefix + "final_layer_norm");
  layer.qkv =
      linear({{attention + "q_proj", K}, {attention + "k_proj", K}, {attention + "v_proj", K}}, K,
             has_bias);
  layer.o = linear({{attention + "out_proj", K}}, K, has_bias);
  layer.mlp.gate_up = {linear({{prefix + "fc1", F}}, K, has_bias)};
  layer.mlp.down = {linear({{prefix + "fc2", K}}, F, has_bias)};
  return layer;
}

DecoderConfig read_opt(const FamilyInput& input) {
  const HfConfig& config = input.config;
  reject_other_variants(config);
  DecoderConfig decoder = read_shape(input, {.norm_epsilon = "layer_norm_eps",
                                             .norm_epsilon_default = 1e-5,
                                             .activation = "activation_function",
                                             .activation_default = "relu",
                                             .intermediate_size = "ffn_dim",
                                             .embedding_name = "model.decoder.embed_tokens.weight",
                                             .has_kv_heads_default = true,
                                             .is_tied_default = true});
  decoder.norm_kind = NormKind::kLayer;
  decoder.is_gated = false;
  decoder.position_embedding_name = "model.decoder.embed_positions.weight";
  decoder.position_offset = kPositionOffset;
  decoder.final_norm = layer_norm_of("model.decoder.final_layer_norm");
  decoder.num_stored_positions = config.integer("max_position_embeddings", 1, 1 << 30);
  if (decoder.max_positions > decoder.num_stored_positions) {
    throw InputError(str(config.where(), ": longest sequence: expected at most ",
                         decoder.num_stored_positions, " (max_position_embeddings), got ",
                         decoder.max_positions, ". Ask for less."));
  }
  const bool has_bias = config.boolean_or("enable_bias", true);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(opt_layer(decoder, i, has_bias));
  }
  return decoder;
}

}  // namespace

const ModelFamily kOpt = {.model_type = "opt", .read = read_opt};

}  // namespace halley
