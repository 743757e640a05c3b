#include "halley/models/qwen/qwen.h"

#include <algorithm>

#include "halley/base/str.h"

namespace halley {
namespace {

/// The window of layers that have one; 0 where use_sliding_window is off.
int64_t window_in_use(const HfConfig& config) {
  return config.boolean_or("use_sliding_window", false) ? read_window(config, 4096) : 0;
}

void set_windows(const HfConfig& config, DecoderConfig& decoder) {
  const int64_t window = window_in_use(config);
  std::vector<bool> is_sliding = read_layer_types(config, decoder.num_layers);
  if (is_sliding.empty()) {
    const int64_t num_full = config.integer_or("max_window_layers", 28, 0, int64_t{1} << 20);
    for (int64_t i = 0; i < decoder.num_layers; ++i) {
      is_sliding.push_back(window > 0 && i >= num_full);
    }
  }
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    if (!is_sliding[i]) continue;
    if (window == 0) {
      config.fail("layer_types",
                  "expected full_attention while use_sliding_window is false or "
                  "sliding_window is null, got sliding_attention");
    }
    decoder.layers[i].window = window;
  }
}

void add_head_norms(int64_t index, LayerSpec& layer) {
  const std::string attention = layer_prefix(index) + "self_attn.";
  layer.q_norm = NormSpec{.weight_name = attention + "q_norm.weight", .bias_name = {}};
  layer.k_norm = NormSpec{.weight_name = attention + "k_norm.weight", .bias_name = {}};
}

DecoderConfig read_qwen2(const FamilyInput& input) {
  DecoderConfig decoder = read_shape(input, {.has_kv_heads_default = true});
  add_rope(input, read_rope_config(input.config, "", 10000.0), decoder);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(llama_layer(decoder, i, {.is_qkv_biased = true}));
  }
  set_windows(input.config, decoder);
  return decoder;
}

/// Qwen3 without windows.
DecoderConfig read_qwen3_layers(const FamilyInput& input) {
  DecoderConfig decoder = read_shape(input, {});
  add_rope(input, read_rope_config(input.config, "", 10000.0), decoder);
  const bool has_bias = input.config.boolean_or("attention_bias", false);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(
        llama_layer(decoder, i, {.is_qkv_biased = has_bias, .is_o_biased = has_bias}));
    add_head_norms(i, decoder.layers.back());
  }
  return decoder;
}

DecoderConfig read_qwen3(const FamilyInput& input) {
  DecoderConfig decoder = read_qwen3_layers(input);
  set_windows(input.config, decoder);
  return decoder;
}

DecoderConfig read_qwen3_moe(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_qwen3_layers(input);
  const char* count = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  ExpertSizes sizes = read_expert_sizes(input, decoder, count);
  sizes.intermediate_size = config.integer("moe_intermediate_size", 1, 1 << 22);
  sizes.is_normalized = config.boolean_or("norm_topk_prob", false);
  const int64_t sparse_step = config.integer_or("decoder_sparse_step", 1, 1, 1 << 20);
  const std::vector<int64_t> dense_layers = config.integers("mlp_only_layers");
  const int64_t window = window_in_use(config);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    LayerSpec& layer = decoder.layers[static_cast<size_t>(i)];
    layer.window = window;
    const bool is_listed =
        std::find(dense_layers.begin(), dense_layers.end(), i) != dense_layers.end();
    if (is_listed || (i + 1) % sparse_step != 0) continue;
    const std::string block = layer_prefix(i) + "mlp.";
    layer.mlp = experts_mlp(input, decoder,
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

const ModelFamily kQwen2 = {.model_type = "qwen2", .read = read_qwen2};
const ModelFamily kQwen3 = {.model_type = "qwen3", .read = read_qwen3};
const ModelFamily kQwen3Moe = {.model_type = "qwen3_moe", .read = read_qwen3_moe};

}  // namespace halley
