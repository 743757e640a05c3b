#include "halley/models/qwen/qwen.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "halley/base/str.h"
#include "halley/models/base/text_part.h"

namespace halley {
namespace {

constexpr int64_t kWindowDefault = 4096;

void set_qwen_windows(const HfConfig& config, DecoderConfig& decoder) {
  const int64_t window = read_switched_window(config, kWindowDefault);
  const int64_t num_full = config.integer_or("max_window_layers", 28, 0, int64_t{1} << 20);
  std::vector<bool> is_sliding;
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    is_sliding.push_back(window > 0 && i >= num_full);
  }
  set_switched_windows(config, window, std::move(is_sliding), decoder);
}

void add_head_norms(int64_t index, LayerSpec& layer) {
  const std::string attention = layer_prefix(index) + "self_attn.";
  layer.q_norm = norm_of(attention + "q_norm");
  layer.k_norm = norm_of(attention + "k_norm");
}

/// The rotary embedding of text in a model whose images have positions of three dimensions.
RopeConfig read_text_rope(const HfConfig& config, double theta_default) {
  RopeConfig rope = read_rope_config(config, "", theta_default);
  if (rope.type != "mrope") return rope;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const std::optional<HfConfig> parameters = config.object(field);
    if (!parameters) continue;
    const std::string type =
        parameters->string_or("rope_type", parameters->string_or("type", "default"));
    if (type != "default" && type != "mrope") {
      unsupported_field(config, field, "type default or mrope with mrope_section", quote(type));
    }
  }
  rope.type = "default";
  return rope;
}

DecoderConfig read_qwen2_layers(const FamilyInput& input, const RopeConfig& rope) {
  DecoderConfig decoder = read_shape(input, {.has_kv_heads_default = true});
  add_rope(input, rope, decoder);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(llama_layer(decoder, i, {.is_qkv_biased = true}));
  }
  set_qwen_windows(input.config, decoder);
  return decoder;
}

DecoderConfig read_qwen2(const FamilyInput& input) {
  return read_qwen2_layers(input, read_rope_config(input.config, "", 10000.0));
}

/// Qwen3 without windows.
DecoderConfig read_qwen3_layers(const FamilyInput& input, const RopeConfig& rope) {
  DecoderConfig decoder = read_shape(input, {});
  add_rope(input, rope, decoder);
  const bool has_bias = input.config.boolean_or("attention_bias", false);
  for (int64_t i = 0; i < decoder.num_layers; ++i) {
    decoder.layers.push_back(
        llama_layer(decoder, i, {.is_qkv_biased = has_bias, .is_o_biased = has_bias}));
    add_head_norms(i, decoder.layers.back());
  }
  return decoder;
}

DecoderConfig read_qwen3(const FamilyInput& input) {
  DecoderConfig decoder = read_qwen3_layers(input, read_rope_config(input.config, "", 10000.0));
  set_qwen_windows(input.config, decoder);
  return decoder;
}

DecoderConfig read_qwen3_moe(const FamilyInput& input) {
  const HfConfig& config = input.config;
  DecoderConfig decoder = read_qwen3_layers(input, read_rope_config(config, "", 10000.0));
  const char* count = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  ExpertSizes sizes = read_expert_sizes(input, decoder, count);
  sizes.intermediate_size = config.integer("moe_intermediate_size", 1, 1 << 22);
  sizes.is_normalized = config.boolean_or("norm_topk_prob", false);
  const int64_t sparse_step = config.integer_or("decoder_sparse_step", 1, 1, 1 << 20);
  const std::vector<int64_t> dense_layers = config.integers("mlp_only_layers");
  const int64_t window = read_switched_window(config, kWindowDefault);
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

TextPart qwen_vl_part() {
  return {.layouts = {{.body = "model.", .head = "lm_head"},
                      {.body = "model.language_model.", .head = "lm_head"}},
          .other_prefixes = {"visual.", "model.visual."}};
}

DecoderConfig read_qwen2_vl(const FamilyInput& input) {
  return read_text_part(input, qwen_vl_part(), [](const FamilyInput& text) {
    return read_qwen2_layers(text, read_text_rope(text.config, 1e6));
  });
}

DecoderConfig read_qwen3_vl(const FamilyInput& input) {
  if (!input.config.has("text_config")) input.config.fail("text_config", "expected an object");
  TextPart part = qwen_vl_part();
  std::swap(part.layouts[0], part.layouts[1]);  // published with the newer names
  return read_text_part(input, part, [](const FamilyInput& text) {
    return read_qwen3_layers(text, read_text_rope(text.config, 500'000.0));
  });
}

}  // namespace

const ModelFamily kQwen2 = {.model_type = "qwen2", .read = read_qwen2};
const ModelFamily kQwen3 = {.model_type = "qwen3", .read = read_qwen3};
const ModelFamily kQwen2Vl = {.model_type = "qwen2_vl", .read = read_qwen2_vl};
const ModelFamily kQwen25Vl = {.model_type = "qwen2_5_vl", .read = read_qwen2_vl};
const ModelFamily kQwen3Vl = {.model_type = "qwen3_vl", .read = read_qwen3_vl};
const ModelFamily kQwen3Moe = {.model_type = "qwen3_moe", .read = read_qwen3_moe};

}  // namespace halley
