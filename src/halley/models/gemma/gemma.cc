#include "halley/models/gemma/gemma.h"

#include <cmath>

#include "halley/core/float16.h"
#include "halley/models/base/text_part.h"

namespace halley {
namespace {

constexpr int64_t kWindowDefault = 4096;

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
DecoderConfig read_gemma(const FamilyInput& input, const ShapeFields& fields) {
  const HfConfig& config = input.config;
  require_boolean(config, "use_bidirectional_attention", false);
  DecoderConfig decoder = read_shape(input, fields);
  decoder.norm_weight_offset = 1;
  const double scalar = read_positive(config, "query_pre_attn_scalar", 256);
  decoder.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  decoder.embedding_scale = round_to(
      decoder.dtype, static_cast<float>(std::sqrt(static_cast<double>(decoder.hidden_size))));
  const bool has_bias = config.boolean_or("attention_bias", false);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    LayerSpec layer = llama_layer(decoder, i, {.is_qkv_biased = has_bias, .is_o_biased = has_bias});
    const std::string prefix = layer_prefix(i);
    layer.attention_out_norm = norm_of(prefix + "post_attention_layernorm");
    layer.mlp_norm = norm_of(prefix + "pre_feedforward_layernorm");
    layer.mlp_out_norm = norm_of(prefix + "post_feedforward_layernorm");
    decoder.layers.push_back(std::move(layer));
  }
  return decoder;
}

DecoderConfig read_gemma2(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_gemma(input, {.activation = "hidden_activation",
                                             .activation_default = "gelu_pytorch_tanh",
                                             .is_tied_default = true});
  decoder.attention_soft_cap = read_soft_cap(config, "attn_logit_softcapping", 50);
  decoder.logits_soft_cap = read_soft_cap(config, "final_logit_softcapping", 30);
  add_rope(input, read_rope_config(config, "", 10000.0), decoder);
  set_windows(config, read_layer_types_or(config, decoder.num_layers, 2), kWindowDefault, decoder);
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
  // Published configurations of multimodal models leave out what transformers assumes.
  DecoderConfig decoder = read_gemma(input, {.activation = "hidden_activation",
                                             .activation_default = "gelu_pytorch_tanh",
                                             .is_tied_default = true,
                                             .vocab_size_default = 262208,
                                             .num_heads_default = 8,
                                             .num_kv_heads_default = 4,
                                             .head_dim_default = 256,
                                             .max_positions_default = 131072});
  decoder.attention_soft_cap = read_soft_cap(config, "attn_logit_softcapping", 0);
  decoder.logits_soft_cap = read_soft_cap(config, "final_logit_softcapping", 0);
  add_gemma3_ropes(input, decoder);
  const int64_t pattern = config.integer_or("sliding_window_pattern", 6, 1, 1 << 20);
  const std::vector<bool> is_sliding = read_layer_types_or(config, decoder.num_layers, pattern);
  set_windows(config, is_sliding, kWindowDefault, decoder);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    LayerSpec& layer = decoder.layers[i];
    const std::string attention = layer_prefix(static_cast<int64_t>(i)) + "self_attn.";
    layer.q_norm = norm_of(attention + "q_norm");
    layer.k_norm = norm_of(attention + "k_norm");
    layer.rope_index = is_sliding[i] ? 1 : 0;
  }
  return decoder;
}

DecoderConfig read_gemma3_whole(const FamilyInput& input) {
  if (!input.config.has("text_config")) input.config.fail("text_config", "expected an object");
  return read_text_part(input, vision_tower_part(), read_gemma3);
}

}  // namespace

const ModelFamily kGemma3 = {.model_type = "gemma3", .read = read_gemma3_whole};
const ModelFamily kGemma2 = {.model_type = "gemma2", .read = read_gemma2};
const ModelFamily kGemma3Text = {.model_type = "gemma3_text", .read = read_gemma3};

}  // namespace halley
