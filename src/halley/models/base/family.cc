#include "halley/models/base/family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/base/rope_scaling.h"

namespace halley {
namespace {

// Limits on what config.json may ask for: far above every published model, low enough that adding
// or multiplying a few of them does not overflow and that the description of the model stays small.
constexpr int64_t kNumLayersMax = 1024;
constexpr int64_t kHiddenMax = 1 << 20;
constexpr int64_t kHeadsMax = 4096;
constexpr int64_t kHeadDimMax = 4096;
constexpr int64_t kIntermediateMax = 1 << 22;
constexpr int64_t kVocabMax = 1 << 24;
constexpr int64_t kPositionsMax = int64_t{1} << 30;
constexpr int64_t kExpertsMax = 1024;
constexpr int64_t kExpertsOfAllLayersMax = 100'000;

struct NamedActivation {
  const char* name;
  Activation activation;
};
constexpr std::array kActivations = {
    NamedActivation{"silu", Activation::kSilu},
    NamedActivation{"swish", Activation::kSilu},
    NamedActivation{"gelu_pytorch_tanh", Activation::kGeluTanh},
    NamedActivation{"gelu_new", Activation::kGeluTanh},
    NamedActivation{"gelu", Activation::kGeluErf},
    NamedActivation{"relu", Activation::kRelu},
};

Activation read_activation(const HfConfig& config, const char* field, const char* fallback) {
  const std::string name = config.string_or(field, fallback);
  std::string known;
  for (const NamedActivation& entry : kActivations) {
    if (name == entry.name) return entry.activation;
    known += str(known.empty() ? "" : ", ", entry.name);
  }
  unsupported_field(config, field, str("one of ", known), quote(name));
}

/// The embedding's type where the weights are at hand, else the type declared in config.json, else
/// f32 as transformers assumes.
DType read_dtype(const FamilyInput& input, const std::string& embedding_name) {
  const TensorInfo* embedding =
      input.tensors == nullptr ? nullptr : input.tensors->find(embedding_name);
  if (embedding != nullptr) {
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
      if (embedding->dtype == dtype) return dtype;
    }
  }
  std::optional<std::string> declared;
  if (input.outer != nullptr) declared = input.outer->dtype();
  if (!declared) declared = input.config.dtype();
  const std::string name = declared.value_or("float32");
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBf16;
  if (name == "float32") return DType::kF32;
  unsupported_field(input.config, "dtype", "float16, bfloat16 or float32", quote(name));
}

/// A size of at least 1; it may be absent where there is a default.
int64_t required_or(const HfConfig& config, const char* field, int64_t fallback, int64_t max) {
  return fallback == 0 ? config.integer(field, 1, max) : config.integer_or(field, fallback, 1, max);
}

/// The longest sequence: what is asked for, within what the model can do. A dynamic rotary
/// embedding is made for longer ones; add_rope() checks that.
void read_positions(const FamilyInput& input, const ShapeFields& fields, DecoderConfig& decoder) {
  decoder.declared_positions = required_or(input.config, "max_position_embeddings",
                                           fields.max_positions_default, kPositionsMax);
  decoder.max_positions = input.max_length > 0 ? input.max_length : decoder.declared_positions;
}

void read_heads(const HfConfig& config, const ShapeFields& fields, DecoderConfig& decoder) {
  decoder.num_heads =
      required_or(config, "num_attention_heads", fields.num_heads_default, kHeadsMax);
  const int64_t num_kv_heads_default =
      fields.has_kv_heads_default ? decoder.num_heads : fields.num_kv_heads_default;
  decoder.num_kv_heads =
      required_or(config, "num_key_value_heads", num_kv_heads_default, kHeadsMax);
  if (decoder.num_heads % decoder.num_kv_heads != 0) {
    config.fail("num_key_value_heads", str("expected a divisor of num_attention_heads ",
                                           decoder.num_heads, ", got ", decoder.num_kv_heads));
  }
  if (config.has("head_dim") || fields.head_dim_default > 0) {
    decoder.head_dim = required_or(config, "head_dim", fields.head_dim_default, kHeadDimMax);
  } else if (decoder.hidden_size % decoder.num_heads == 0) {
    decoder.head_dim = decoder.hidden_size / decoder.num_heads;
  } else {
    config.fail("num_attention_heads", str("expected a divisor of hidden_size ",
                                           decoder.hidden_size, ", got ", decoder.num_heads));
  }
}

/// Whether a rotary parameter stands in config.json, for all layers or for some layer type.
bool states_rope_parameter(const HfConfig& config, const char* name) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const auto parameters = config.object(field);
    if (!parameters) continue;
    if (parameters->has(name)) return true;
    for (const Json& entry : parameters->json()) {
      if (entry.is_object() && entry.contains(name)) return true;
    }
  }
  return false;
}

/// Throws where the rotary type needs a factor and config.json has none: 1 would be wrong.
void require_rope_factor(const HfConfig& config, const RopeConfig& rope) {
  const bool needs_factor =
      rope.type == "linear" || rope.type == "dynamic" || rope.type == "llama3";
  if (!needs_factor || states_rope_parameter(config, "factor")) return;
  throw InputError(str(config.where(), ": rotary field 'factor': expected a number for type ",
                       rope.type, ", got none. Correct rope_parameters (or rope_scaling)."));
}

}  // namespace

void unsupported_field(const HfConfig& config, std::string_view field, const std::string& expected,
                       const std::string& got) {
  throw UnsupportedError(str(config.where(), ": field '", config.prefix(), field, "': expected ",
                             expected, ", got ", got, ". This variant of ",
                             quote(config.string_or("model_type", "the family")),
                             " is not supported."));
}

void require_boolean(const HfConfig& config, std::string_view field, bool supported) {
  if (config.boolean_or(field, supported) == supported) return;
  unsupported_field(config, field, supported ? "true" : "false", supported ? "false" : "true");
}

DecoderConfig read_shape(const FamilyInput& input, const ShapeFields& fields) {
  const HfConfig& config = input.config;
  DecoderConfig decoder;
  decoder.where = config.where();
  decoder.family = input.family();
  decoder.hidden_size = config.integer("hidden_size", 1, kHiddenMax);
  decoder.num_layers = config.integer("num_hidden_layers", 1, kNumLayersMax);
  decoder.vocab_size = required_or(config, "vocab_size", fields.vocab_size_default, kVocabMax);
  decoder.intermediate_size = config.integer(fields.intermediate_size, 1, kIntermediateMax);
  read_heads(config, fields, decoder);
  read_positions(input, fields, decoder);
  decoder.norm_epsilon =
      static_cast<float>(config.number_or(fields.norm_epsilon, fields.norm_epsilon_default));
  if (!std::isfinite(decoder.norm_epsilon) || decoder.norm_epsilon < 0) {
    config.fail(fields.norm_epsilon, str("expected a number >= 0, got ", decoder.norm_epsilon));
  }
  decoder.activation = read_activation(config, fields.activation, fields.activation_default);
  decoder.attention_scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(decoder.head_dim)));
  decoder.embedding_name = fields.embedding_name;
  decoder.final_norm = {.weight_name = "model.norm.weight", .bias_name = {}};
  decoder.dtype = read_dtype(input, decoder.embedding_name);
  set_tied(config.boolean_or("tie_word_embeddings", fields.is_tied_default), decoder);
  // Written by old versions of transformers; computed from config.json here.
  decoder.ignored_suffixes = {".self_attn.rotary_emb.inv_freq"};
  return decoder;
}

void set_tied(bool is_tied, DecoderConfig& decoder) {
  decoder.lm_head.reset();
  decoder.tied_output_name.clear();
  if (is_tied) {
    decoder.tied_output_name = "lm_head.weight";
  } else {
    decoder.lm_head = linear({{"lm_head", decoder.vocab_size}}, decoder.hidden_size);
    decoder.lm_head->parts[0].is_usually_dense = true;
  }
}

int add_rope(const FamilyInput& input, const RopeConfig& rope, DecoderConfig& decoder) {
  const int64_t declared = decoder.declared_positions;
  if (decoder.max_positions > declared && rope.type != "dynamic") {
    throw InputError(str(input.config.where(), ": longest sequence: expected at most ", declared,
                         " (max_position_embeddings), got ", decoder.max_positions,
                         ". Ask for less."));
  }
  require_rope_factor(input.config, rope);
  decoder.ropes.push_back(make_rope(rope, {.where = input.config.where(),
                                           .head_dim = decoder.head_dim,
                                           .max_position_embeddings = declared,
                                           .max_length = decoder.max_positions}));
  return static_cast<int>(decoder.ropes.size()) - 1;
}

std::string layer_prefix(int64_t index) { return str("model.layers.", index, "."); }

NormSpec norm_of(const std::string& name) {
  return {.weight_name = name + ".weight", .bias_name = {}};
}

LinearSpec linear(const std::vector<std::pair<std::string, int64_t>>& parts, int64_t in_features,
                  bool has_bias) {
  LinearSpec spec;
  spec.in_features = in_features;
  spec.has_bias = has_bias;
  for (const auto& [name, out_features] : parts) {
    spec.parts.push_back({.name = name, .out_features = out_features, .stored_rows = out_features});
  }
  return spec;
}

MlpSpec gated_mlp(const DecoderConfig& decoder, const std::string& prefix, int64_t F,
                  bool is_biased) {
  MlpSpec mlp;
  mlp.gate_up.push_back(
      linear({{prefix + "gate_proj", F}, {prefix + "up_proj", F}}, decoder.hidden_size, is_biased));
  mlp.down.push_back(linear({{prefix + "down_proj", decoder.hidden_size}}, F, is_biased));
  return mlp;
}

LayerSpec llama_layer(const DecoderConfig& decoder, int64_t index, const LayerBiases& biases) {
  const std::string prefix = layer_prefix(index), attention = prefix + "self_attn.";
  const int64_t q_features = decoder.num_heads * decoder.head_dim;
  const int64_t kv_features = decoder.num_kv_heads * decoder.head_dim;
  LayerSpec layer;
  layer.input_norm = norm_of(prefix + "input_layernorm");
  layer.mlp_norm = norm_of(prefix + "post_attention_layernorm");
  layer.qkv = linear({{attention + "q_proj", q_features},
                      {attention + "k_proj", kv_features},
                      {attention + "v_proj", kv_features}},
                     decoder.hidden_size, biases.is_qkv_biased);
  layer.o = linear({{attention + "o_proj", decoder.hidden_size}}, q_features, biases.is_o_biased);
  layer.mlp = gated_mlp(decoder, prefix + "mlp.", decoder.intermediate_size, biases.is_mlp_biased);
  layer.rope_index = 0;
  return layer;
}

ExpertSizes read_expert_sizes(const FamilyInput& input, const DecoderConfig& decoder,
                              std::string_view num_experts_field) {
  const HfConfig& config = input.config;
  ExpertSizes sizes;
  sizes.num_experts = config.integer(num_experts_field, 1, kExpertsMax);
  sizes.num_experts_per_token = config.integer("num_experts_per_tok", 1, sizes.num_experts);
  if (sizes.num_experts * decoder.num_layers > kExpertsOfAllLayersMax) {
    config.fail(num_experts_field,
                str("expected at most ", kExpertsOfAllLayersMax, " experts in all layers, got ",
                    sizes.num_experts * decoder.num_layers));
  }
  sizes.intermediate_size = decoder.intermediate_size;
  return sizes;
}

MlpSpec fused_experts_mlp(const DecoderConfig& decoder, const FusedExpertNames& names,
                          const ExpertSizes& sizes) {
  const int64_t K = decoder.hidden_size, F = sizes.intermediate_size, E = sizes.num_experts;
  MlpSpec mlp;
  mlp.num_experts_per_token = sizes.num_experts_per_token;
  mlp.is_normalized = sizes.is_normalized;
  mlp.router = linear({{names.router, E}}, K);
  mlp.router->parts[0].is_usually_dense = true;
  for (int64_t expert = 0; expert < E; ++expert) {
    mlp.gate_up.push_back(linear({{names.gate_up, 2 * F}}, K));
    mlp.down.push_back(linear({{names.down, K}}, F));
    for (LinearSpec* spec : {&mlp.gate_up.back(), &mlp.down.back()}) {
      spec->parts[0].expert = expert;
      spec->parts[0].num_stored_experts = E;
    }
  }
  return mlp;
}

MlpSpec experts_mlp(const FamilyInput& input, const DecoderConfig& decoder,
                    const ExpertNames& names, const ExpertSizes& sizes) {
  const int64_t K = decoder.hidden_size, F = sizes.intermediate_size, E = sizes.num_experts;
  const std::string fused_gate_up = names.fused_block + "experts.gate_up_proj";
  if (input.tensors != nullptr && input.tensors->find(fused_gate_up) != nullptr) {
    return fused_experts_mlp(decoder,
                             {.router = names.fused_block + "gate",
                              .gate_up = fused_gate_up,
                              .down = names.fused_block + "experts.down_proj"},
                             sizes);
  }
  MlpSpec mlp;
  mlp.num_experts_per_token = sizes.num_experts_per_token;
  mlp.is_normalized = sizes.is_normalized;
  mlp.router = linear({{names.block + "gate", E}}, K);
  mlp.router->parts[0].is_usually_dense = true;
  for (int64_t expert = 0; expert < E; ++expert) {
    const std::string prefix = str(names.block, "experts.", expert, ".");
    mlp.gate_up.push_back(linear({{prefix + names.gate, F}, {prefix + names.up, F}}, K));
    mlp.down.push_back(linear({{prefix + names.down, K}}, F));
  }
  return mlp;
}

std::vector<bool> read_layer_types(const HfConfig& config, int64_t num_layers) {
  std::vector<bool> is_sliding;
  if (!config.has("layer_types")) return is_sliding;
  for (const std::string& type : config.strings("layer_types")) {
    if (type != "sliding_attention" && type != "full_attention") {
      unsupported_field(config, "layer_types", "sliding_attention or full_attention", quote(type));
    }
    is_sliding.push_back(type == "sliding_attention");
  }
  if (is_sliding.size() != static_cast<size_t>(num_layers)) {
    config.fail("layer_types", str("expected one entry for each of the ", num_layers,
                                   " layers, got ", is_sliding.size()));
  }
  return is_sliding;
}

std::vector<bool> read_layer_types_or(const HfConfig& config, int64_t num_layers, int64_t pattern) {
  std::vector<bool> is_sliding = read_layer_types(config, num_layers);
  if (is_sliding.empty()) {
    for (int64_t i = 0; i < num_layers; ++i) is_sliding.push_back((i + 1) % pattern != 0);
  }
  return is_sliding;
}

void set_windows(const HfConfig& config, const std::vector<bool>& is_sliding, int64_t fallback,
                 DecoderConfig& decoder) {
  const int64_t window = read_window(config, fallback);
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    if (is_sliding[i]) decoder.layers[i].window = window;
    if (is_sliding[i] && window == 0) {
      config.fail("sliding_window", "expected a number, since some layers slide, got null");
    }
  }
}

int64_t read_switched_window(const HfConfig& config, int64_t fallback) {
  return config.boolean_or("use_sliding_window", false) ? read_window(config, fallback) : 0;
}

void set_switched_windows(const HfConfig& config, int64_t window, std::vector<bool> is_sliding,
                          DecoderConfig& decoder) {
  const std::vector<bool> listed = read_layer_types(config, decoder.num_layers);
  if (!listed.empty()) is_sliding = listed;
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

double read_positive(const HfConfig& config, std::string_view field, double fallback) {
  const double value = config.number_or(field, fallback);
  if (!std::isfinite(value) || value <= 0) {
    config.fail(field, str("expected a positive number, got ", value));
  }
  return value;
}

int64_t read_window(const HfConfig& config, int64_t fallback) {
  if (!config.json().contains("sliding_window")) return fallback;
  return config.integer_or("sliding_window", 0, 1, kPositionsMax);
}

}  // namespace halley
