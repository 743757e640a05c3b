#include "halley/models/gemma/gemma.h"

#include <cmath>

#include "halley/core/float16.h"

namespace halley {
namespace {

float round_to(DType dtype, float value) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  if (dtype == DType::kBf16) return bf16_to_f32(f32_to_bf16(value));
  return value;
}

float read_soft_cap(const HfConfig& config, const char* field, double fallback) {
  const bool is_null = config.json().contains(field) && !config.has(field);
  const auto cap = static_cast<float>(is_null ? 0 : config.number_or(field, fallback));
  if (!std::isfinite(cap) || cap < 0) config.fail(field, "expected a positive number or null");
  return cap;
}

/// The parts that both generations share: all but windows, rotary embeddings and head norms.
DecoderConfig read_gemma(const FamilyInput& input) {
  const HfConfig& config = input.config;
  require_boolean(config, "use_bidirectional_attention", false);
  DecoderConfig decoder = read_shape(input, {.activation = "hidden_activation",
                                             .activation_default = "gelu_pytorch_tanh",
                                             .is_tied_default = true});
  decoder.norm_weight_offset = 1;
  const double scalar = config.number_or("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) config.fail("query_pre_attn_scalar", "expected a positive number");
  decoder.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  decoder.embedding_scale = round_to(
      decoder.dtype, static_cast<float>(std::sqrt(static_cast<double>(decoder.hidden_size))));
  const bool has_bias = config.boolean_or("attention_bias", false);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    LayerSpec layer = llama_layer(decoder, i, {.is_qkv_biased = has_bias, .is_o_biased = has_bias});
    const std::string prefix = layer_prefix(i);
    layer.attention_out_norm =
        NormSpec{.weight_name = prefix + "post_attention_layernorm.weight", .bias_name = {}};
    layer.mlp_norm.weight_name = prefix + "pre_feedforward_layernorm.weight";
    layer.mlp_out_norm =
        NormSpec{.weight_name = prefix + "post_feedforward_layernorm.weight", .bias_name = {}};
    decoder.layers.push_back(std::move(layer));
  }
  return decoder;
}

/// layer_types, or every `pattern`-th layer full and the others with a window.
std::vector<bool> sliding_layers(const HfConfig& config, int64_t num_layers, int64_t pattern) {
  std::vector<bool> is_sliding = read_layer_types(config, num_layers);
  if (is_sliding.empty()) {
    for (int64_t i = 0; i < num_layers; ++i) is_sliding.push_back((i + 1) % pattern != 0);
  }
  return is_sliding;
}

void set_windows(const HfConfig& config, const std::vector<bool>& is_sliding,
                 DecoderConfig& decoder) {
  const int64_t window = read_window(config, 4096);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    if (is_sliding[i]) decoder.layers[i].window = window;
    if (is_sliding[i] && window == 0) {
      config.fail("sliding_window", "expected a number, since some layers slide, got null");
    }
  }
}

DecoderConfig read_gemma2(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_gemma(input);
  decoder.attention_soft_cap = read_soft_cap(config, "attn_logit_softcapping", 50);
  decoder.logits_soft_cap = read_soft_cap(config, "final_logit_softcapping", 30);
  add_rope(input, read_rope_config(config, "", 10000.0), decoder);
  set_windows(config, sliding_layers(config, decoder.num_layers, 2), decoder);
  return decoder;
}

/// Rotary embedding 0 is for full layers, 1 for those with a window.
void add_gemma3_ropes(const FamilyInput& input, DecoderConfig& decoder) {
  const HfConfig& config = input.config;
  if (config.has("rope_parameters")) {
    add_rope(input, read_rope_config(config, "full_attention", 1e6), decoder);
    add_rope(input, read_rope_config(config, "sliding_attention", 10000.0), decoder);
    return;
  }
  // The older syntax: rope_scaling concerns full layers only.
  add_rope(input, read_rope_config(config, "", 1e6), decoder);
  RopeConfig local;
  local.theta = config.number_or("rope_local_base_freq", 10000.0);
  add_rope(input, local, decoder);
}

DecoderConfig read_gemma3(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_gemma(input);
  decoder.attention_soft_cap = read_soft_cap(config, "attn_logit_softcapping", 0);
  decoder.logits_soft_cap = read_soft_cap(config, "final_logit_softcapping", 0);
  add_gemma3_ropes(input, decoder);
  const int64_t pattern = config.integer_or("sliding_window_pattern", 6, 1, 1 << 20);
  const std::vector<bool> is_sliding = sliding_layers(config, decoder.num_layers, pattern);
  set_windows(config, is_sliding, decoder);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerSpec& layer = decoder.layers[i];
    const std::string attention = layer_prefix(static_cast<int64_t>(i)) + "self_attn.";
    layer.q_norm = NormSpec{.weight_name = attention + "q_norm.weight", .bias_name = {}};
    layer.k_norm = NormSpec{.weight_name = attention + "k_norm.weight", .bias_name = {}};
    layer.rope_index = is_sliding[i] ? 1 : 0;
  }
  return decoder;
}

}  // namespace

const ModelFamily kGemma2 = {.model_type = "gemma2", .read = read_gemma2};
const ModelFamily kGemma3Text = {.model_type = "gemma3_text", .read = read_gemma3};

}  // namespace halley
