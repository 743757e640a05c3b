#include "halley/models/olmo/olmo.h"

#include <optional>
#include <utility>

#include "halley/base/str.h"

namespace halley {
namespace {

constexpr double kOlmo3ThetaDefault = 500'000.0;

/// The layers of a Llama with norms over all heads, which the generations share.
DecoderConfig read_olmo_layers(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder =
      read_shape(input, {.norm_epsilon_default = 1e-5, .has_kv_heads_default = true});
  decoder.qk_norm_extent = QkNormExtent::kAllHeads;
  const bool has_bias = config.boolean_or("attention_bias", false);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    LayerSpec layer = llama_layer(decoder, i, {.is_qkv_biased = has_bias, .is_o_biased = has_bias});
    layer.q_norm = norm_of(layer_prefix(i) + "self_attn.q_norm");
    layer.k_norm = norm_of(layer_prefix(i) + "self_attn.k_norm");
    decoder.layers.push_back(std::move(layer));
  }
  return decoder;
}

/// Moves the norms behind the blocks.
DecoderConfig read_post_norm_layers(const FamilyInput& input) {
  DecoderConfig decoder = read_olmo_layers(input);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    const std::string prefix = layer_prefix(static_cast<int64_t>(i));
    LayerSpec& layer = decoder.layers[i];
    layer.input_norm.reset();
    layer.attention_out_norm = norm_of(prefix + "post_attention_layernorm");
    layer.mlp_norm.reset();
    layer.mlp_out_norm = norm_of(prefix + "post_feedforward_layernorm");
  }
  return decoder;
}

DecoderConfig read_olmo2(const FamilyInput& input) {
  DecoderConfig decoder = read_post_norm_layers(input);
  add_rope(input, read_rope_config(input.config, "", 10000.0), decoder);
  return decoder;
}

/// Rotary embedding 0 is for full layers, 1 for those with a window.
void add_olmo3_ropes(const FamilyInput& input, DecoderConfig& decoder) {
  const HfConfig& config = input.config;
  add_rope(input, read_rope_config(config, "full_attention", kOlmo3ThetaDefault), decoder);
  const std::optional<HfConfig> parameters = config.object("rope_parameters");
  if (parameters && parameters->has("sliding_attention")) {
    add_rope(input, read_rope_config(config, "sliding_attention", kOlmo3ThetaDefault), decoder);
    return;
  }
  // One set of parameters: its scaling is not for layers with a window.
  RopeConfig local;
  local.theta = read_rope_config(config, "full_attention", kOlmo3ThetaDefault).theta;
  add_rope(input, local, decoder);
}

DecoderConfig read_olmo3(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_post_norm_layers(input);
  add_olmo3_ropes(input, decoder);
  const std::vector<bool> is_sliding = read_layer_types_or(config, decoder.num_layers, 4);
  set_windows(config, is_sliding, 4096, decoder);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    decoder.layers[i].rope_index = is_sliding[i] ? 1 : 0;
  }
  return decoder;
}

DecoderConfig read_olmoe(const FamilyInput& input) {
  const HfConfig& config = input.config;
  if (config.has("clip_qkv")) {
    unsupported_field(config, "clip_qkv", "null", str(config.number("clip_qkv")));
  }
  DecoderConfig decoder = read_olmo_layers(input);
  add_rope(input, read_rope_config(config, "", 10000.0), decoder);
  const char* count = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  ExpertSizes sizes = read_expert_sizes(input, decoder, count);
  sizes.is_normalized = config.boolean_or("norm_topk_prob", false);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    const std::string block = layer_prefix(i) + "mlp.";
    decoder.layers[static_cast<size_t>(i)].mlp = experts_mlp(input, decoder,
                                                             {.block = block,
                                                              .gate = "gate_proj",
                                                              .up = "up_proj",
                                                              .down = "down_proj",
                                                              .fused_block = block},
                                                             sizes);
  }
  return decoder;
}

}  // namespace

const ModelFamily kOlmo2 = {.model_type = "olmo2", .read = read_olmo2};
const ModelFamily kOlmo3 = {.model_type = "olmo3", .read = read_olmo3};
const ModelFamily kOlmoe = {.model_type = "olmoe", .read = read_olmoe};

}  // namespace halley
