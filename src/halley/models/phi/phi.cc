#include "halley/models/phi/phi.h"

#include "halley/base/str.h"

namespace halley {
namespace {

RopeConfig read_phi_rope(const HfConfig& config) {
  RopeConfig rope = read_rope_config(config, "", 10000.0);
  if (rope.type == "su" || rope.type == "yarn") rope.type = "longrope";
  if (rope.type != "default" && rope.type != "longrope") {
    unsupported_field(config, "rope_scaling", "type default or longrope", quote(rope.type));
  }
  return rope;
}

DecoderConfig read_phi3(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder =
      read_shape(input, {.norm_epsilon_default = 1e-5, .has_kv_heads_default = true});
  add_rope(input, read_phi_rope(config), decoder);
  const int64_t window = read_window(config, 0);
  const int64_t qkv_features = (decoder.num_heads + 2 * decoder.num_kv_heads) * decoder.head_dim;
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    const std::string prefix = layer_prefix(i);
    LayerSpec layer = llama_layer(decoder, i, {});
    layer.window = window;
    layer.qkv = linear({{prefix + "self_attn.qkv_proj", qkv_features}}, decoder.hidden_size);
    layer.mlp.gate_up = {linear({{prefix + "mlp.gate_up_proj", 2 * decoder.intermediate_size}},
                                decoder.hidden_size)};
    decoder.layers.push_back(std::move(layer));
  }
  return decoder;
}

}  // namespace

const ModelFamily kPhi3 = {.model_type = "phi3", .read = read_phi3};

}  // namespace halley
