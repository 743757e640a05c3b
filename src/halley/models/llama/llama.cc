#include "halley/models/llama/llama.h"

#include <utility>

#include "halley/base/str.h"
#include "halley/models/base/text_part.h"

namespace halley {
namespace {

LayerBiases read_biases(const HfConfig& config) {
  const bool has_attention_bias = config.boolean_or("attention_bias", false);
  return {.is_qkv_biased = has_attention_bias,
          .is_o_biased = has_attention_bias,
          .is_mlp_biased = config.boolean_or("mlp_bias", false)};
}

DecoderConfig read_llama(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_shape(input, {.has_kv_heads_default = true});
  add_rope(input, read_rope_config(config, "", 10000.0), decoder);
  const LayerBiases biases = read_biases(config);
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

DecoderConfig read_mistral3(const FamilyInput& input) {
  if (!input.config.has("text_config")) input.config.fail("text_config", "expected an object");
  const HfConfig text = *input.config.object("text_config");
  const std::string type = text.string_or("model_type", kMistral.model_type);
  if (type != kMistral.model_type) {
    unsupported_field(input.config, "text_config.model_type", quote(kMistral.model_type),
                      quote(type));
  }
  return read_text_part(input, vision_tower_part(), read_mistral);
}

/// Whether each layer has a rotary embedding: `no_rope_layers` has a 1 for those that have, or
/// every no_rope_layer_interval-th has none.
std::vector<bool> read_rope_layers(const HfConfig& config, int64_t num_layers) {
  constexpr const char* kField = "no_rope_layers";
  const std::vector<int64_t> listed = config.integers(kField);
  const int64_t interval = config.integer_or("no_rope_layer_interval", 4, 1, 1 << 20);
  if (config.has(kField) && listed.size() < static_cast<size_t>(num_layers)) {
    config.fail(kField, str("expected an entry for each of the ", num_layers, " layers, got ",
                            listed.size()));
  }
  std::vector<bool> has_rope;
  for (int64_t i = 0; i < num_layers; ++i) {
    const int64_t entry =
        listed.empty() ? int64_t{(i + 1) % interval != 0} : listed[static_cast<size_t>(i)];
    if (entry != 0 && entry != 1) {
      config.fail(kField, str("element ", i, ": expected 0 or 1, got ", entry));
    }
    has_rope.push_back(entry == 1);
  }
  return has_rope;
}

DecoderConfig read_smollm3(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_shape(input, {.is_tied_default = true, .num_kv_heads_default = 4});
  add_rope(input, read_rope_config(config, "", 2e6), decoder);
  const LayerBiases biases = read_biases(config);
  const std::vector<bool> has_rope = read_rope_layers(config, decoder.num_layers);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(llama_layer(decoder, i, biases));
    if (!has_rope[static_cast<size_t>(i)]) decoder.layers.back().rope_index = -1;
  }
  const int64_t window = read_switched_window(config, 0);
  std::vector<bool> is_sliding;
  for (const bool rotates : has_rope) is_sliding.push_back(window > 0 && !rotates);
  set_switched_windows(config, window, std::move(is_sliding), decoder);
  return decoder;
}

}  // namespace

const ModelFamily kLlama = {.model_type = "llama", .read = read_llama};
const ModelFamily kMistral = {.model_type = "mistral", .read = read_mistral};
const ModelFamily kMistral3 = {.model_type = "mistral3", .read = read_mistral3};
const ModelFamily kSmolLm3 = {.model_type = "smollm3", .read = read_smollm3};

}  // namespace halley
