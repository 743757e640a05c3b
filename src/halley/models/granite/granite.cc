#include "halley/models/granite/granite.h"

#include <utility>

#include "halley/base/str.h"

namespace halley {
namespace {

/// The limits are far beyond every model's, and keep quotients of two factors within f32.
double read_factor(const HfConfig& config, const char* field) {
  constexpr double kMax = 1e6;
  const double factor = read_positive(config, field, 1.0);
  if (factor < 1 / kMax || factor > kMax) {
    config.fail(field, str("expected a number of ", 1 / kMax, " to ", kMax, ", got ", factor));
  }
  return factor;
}

/// Sizes and factors. The factor m on the blocks' outputs is not multiplied in each layer: the
/// residual stream is kept divided by m. Everything reads the stream through RMSNorms, and
/// norm(x, epsilon) = norm(x / m, epsilon / m^2), so that no weight and no output changes.
DecoderConfig read_granite_shape(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_shape(input, {.has_kv_heads_default = true});
  const double residual = read_factor(config, "residual_multiplier");
  const double embedding = read_factor(config, "embedding_multiplier");
  const double epsilon = config.number_or("rms_norm_eps", 1e-6);
  decoder.embedding_scale = static_cast<float>(embedding / residual);
  decoder.norm_epsilon = static_cast<float>(epsilon / (residual * residual));
  decoder.attention_scale = static_cast<float>(read_factor(config, "attention_multiplier"));
  decoder.logits_scale = static_cast<float>(1 / read_factor(config, "logits_scaling"));
  add_rope(input, read_rope_config(config, "", 10000.0), decoder);
  return decoder;
}

LayerSpec granite_layer(const HfConfig& config, const DecoderConfig& decoder, int64_t index,
                        bool is_mlp_biased) {
  const bool has_bias = config.boolean_or("attention_bias", false);
  return llama_layer(
      decoder, index,
      {.is_qkv_biased = has_bias, .is_o_biased = has_bias, .is_mlp_biased = is_mlp_biased});
}

DecoderConfig read_granite(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_granite_shape(input);
  const bool is_mlp_biased = config.boolean_or("mlp_bias", false);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(granite_layer(config, decoder, i, is_mlp_biased));
  }
  return decoder;
}

DecoderConfig read_granite_moe(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_granite_shape(input);
  // The softmax is over the chosen experts alone: that of all, divided by its sum over them.
  const ExpertSizes sizes = read_expert_sizes(input, decoder, "num_local_experts");
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    LayerSpec layer = granite_layer(config, decoder, i, false);
    const std::string block = layer_prefix(i) + "block_sparse_moe.";
    layer.mlp = fused_experts_mlp(decoder,
                                  {.router = block + "router.layer",
                                   .gate_up = block + "input_linear.weight",
                                   .down = block + "output_linear.weight"},
                                  sizes);
    decoder.layers.push_back(std::move(layer));
  }
  return decoder;
}

}  // namespace

const ModelFamily kGranite = {.model_type = "granite", .read = read_granite};
const ModelFamily kGraniteMoe = {.model_type = "granitemoe", .read = read_granite_moe};

}  // namespace halley
