#include "halley/models/llama/llama.h"

#include "halley/base/str.h"

namespace halley {
namespace {

DecoderConfig read_llama(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_shape(input, {.has_kv_heads_default = true});
  add_rope(input, read_rope_config(config, "", 10000.0), decoder);
  const bool has_attention_bias = config.boolean_or("attention_bias", false);
  const LayerBiases biases = {.is_qkv_biased = has_attention_bias,
                              .is_o_biased = has_attention_bias,
                              .is_mlp_biased = config.boolean_or("mlp_bias", false)};
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(llama_layer(decoder, i, biases));
  }
  return decoder;
}

DecoderConfig read_mistral(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_shape(input, {});
  add_rope(input, read_rope_config(config, "", 10000.0), decoder);
  const int64_t window = read_window(config, 4096);
  for (const bool is_sliding : read_layer_types(config, decoder.num_layers)) {
    if (is_sliding != (window > 0)) {
      unsupported_field(config, "layer_types", "the same type for all layers",
                        is_sliding ? "sliding_attention without sliding_window"
                                   : "full_attention with sliding_window");
    }
  }
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(llama_layer(decoder, i, {}));
    decoder.layers.back().window = window;
  }
  return decoder;
}

}  // namespace

const ModelFamily kLlama = {.model_type = "llama", .read = read_llama};
const ModelFamily kMistral = {.model_type = "mistral", .read = read_mistral};

}  // namespace halley
