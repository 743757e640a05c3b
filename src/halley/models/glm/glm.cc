#include "halley/models/glm/glm.h"

#include <optional>
#include <utility>

namespace halley {
namespace {

/// Half of each head turns unless config.json says otherwise.
RopeConfig read_glm_rope(const HfConfig& config) {
  RopeConfig rope = read_rope_config(config, "", 10000.0);
  const std::optional<HfConfig> parameters = config.object("rope_parameters");
  const bool is_declared = config.has("partial_rotary_factor") ||
                           (parameters && parameters->has("partial_rotary_factor"));
  if (!is_declared) rope.partial_rotary_factor = 0.5;
  return rope;
}

DecoderConfig read_glm(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder =
      read_shape(input, {.norm_epsilon_default = 1.5625e-7, .head_dim_default = 128});
  const int rope = add_rope(input, read_glm_rope(config), decoder);
  decoder.ropes[static_cast<size_t>(rope)].is_interleaved = true;
  const bool has_bias = config.boolean_or("attention_bias", true);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    LayerSpec layer = llama_layer(decoder, i, {.is_qkv_biased = has_bias});
    layer.mlp.gate_up = {
        linear({{layer_prefix(i) + "mlp.gate_up_proj", 2 * decoder.intermediate_size}},
               decoder.hidden_size)};
    decoder.layers.push_back(std::move(layer));
  }
  return decoder;
}

DecoderConfig read_glm4(const FamilyInput& input) {
  DecoderConfig decoder = read_glm(input);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    const std::string prefix = layer_prefix(static_cast<int64_t>(i));
    decoder.layers[i].attention_out_norm = norm_of(prefix + "post_self_attn_layernorm");
    decoder.layers[i].mlp_out_norm = norm_of(prefix + "post_mlp_layernorm");
  }
  return decoder;
}

}  // namespace

const ModelFamily kGlm = {.model_type = "glm", .read = read_glm};
const ModelFamily kGlm4 = {.model_type = "glm4", .read = read_glm4};

}  // namespace halley
