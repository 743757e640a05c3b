#include "halley/checkpoint/gguf/config_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/architecture.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr int64_t kSizeMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kLayersMax = 1024;
/// Blocks of the 27B models of Gemma, whose attention has another scale than their heads' size
/// gives; the metadata does not say it, and llama.cpp goes by the number of blocks too.
constexpr int64_t kGemma2BlocksOf27b = 46, kGemma3BlocksOf27b = 62;

class ConfigMaker {
 public:
  explicit ConfigMaker(const GgufHeader& header)
      : header_(header),
        metadata_(header.metadata),
        architecture_(find_gguf_architecture(header.metadata)),
        model_type_(architecture_.model_type) {}

  std::string make() {
    reject_experts();
    add_sizes();
    add_rope();
    add_biases();
    if (architecture_.has_norm_offset) add_gemma();
    add_window();
    if (model_type_ == "qwen3_moe") add_experts();
    if (model_type_ == "granite") add_granite();
    config_["model_type"] = model_type_;
    add_types();
    for (const char* name : {"bos", "eos"}) {
      const auto id = metadata_.integer(str("tokenizer.ggml.", name, "_token_id"), 0, kSizeMax);
      if (id) config_[str(name, "_token_id")] = *id;
    }
    return config_.dump();
  }

 private:
  std::string key(std::string_view name) const { return str(architecture_.name, ".", name); }

  /// A number that llama.cpp writes once, or once a block; all must be equal.
  int64_t uniform(std::string_view name) const {
    const auto values = metadata_.integers(key(name));
    if (!values || values->empty()) {
      metadata_.fail(key(name), "expected an integer, got nothing. Convert the model again.");
    }
    for (const int64_t value : *values) {
      if (value == values->front()) continue;
      throw UnsupportedError(str(metadata_.where(), ": metadata ", quote(key(name)),
                                 ": expected the same for all blocks, got ", values->front(),
                                 " and ", value, ". Such models are not supported."));
    }
    if (values->front() < 1 || values->front() > kSizeMax) {
      metadata_.fail(key(name),
                     str("expected an integer in [1, ", kSizeMax, "], got ", values->front(), "."));
    }
    return values->front();
  }

  void add_sizes() {
    const GgufTensor* table = header_.find("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) {
      throw CheckpointError(str(metadata_.where(), ": tensor \"token_embd.weight\": expected a ",
                                "matrix, got none. Take a file with the whole model."));
    }
    config_["vocab_size"] = table->shape[0];
    config_["hidden_size"] = uniform("embedding_length");
    num_layers_ = metadata_.required_integer(key("block_count"), 1, kLayersMax);
    config_["num_hidden_layers"] = num_layers_;
    config_["intermediate_size"] = uniform("feed_forward_length");
    num_heads_ = uniform("attention.head_count");
    config_["num_attention_heads"] = num_heads_;
    config_["num_key_value_heads"] = metadata_.has(key("attention.head_count_kv"))
                                         ? uniform("attention.head_count_kv")
                                         : num_heads_;
    config_["max_position_embeddings"] =
        metadata_.required_integer(key("context_length"), 1, kSizeMax);
    const std::string epsilon = key("attention.layer_norm_rms_epsilon");
    const auto value = metadata_.number(epsilon);
    if (!value) metadata_.fail(epsilon, "expected a number, got nothing.");
    config_["rms_norm_eps"] = *value;
    config_["tie_word_embeddings"] = header_.find("output.weight") == nullptr;
    add_head_dim();
  }

  void add_head_dim() {
    const int64_t hidden_size = config_["hidden_size"];
    const auto length = metadata_.integer(key("attention.key_length"), 1, kSizeMax);
    if (!length && hidden_size % num_heads_ != 0) {
      metadata_.fail(key("attention.key_length"),
                     "expected the size of a head, since embedding_length is no multiple of "
                     "head_count, got nothing.");
    }
    head_dim_ = length.value_or(hidden_size / num_heads_);
    const int64_t values =
        metadata_.integer(key("attention.value_length"), 1, kSizeMax).value_or(head_dim_);
    if (values != head_dim_) {
      throw UnsupportedError(str(metadata_.where(), ": metadata ",
                                 quote(key("attention.value_length")), ": expected ", head_dim_,
                                 " as for keys, got ", values, ". Such models are not supported."));
    }
    config_["head_dim"] = head_dim_;
  }

  void add_rope() {
    config_["rope_theta"] = metadata_.number(key("rope.freq_base")).value_or(10000.0);
    const int64_t dim =
        metadata_.integer(key("rope.dimension_count"), 1, kSizeMax).value_or(head_dim_);
    // GLM-4 has a default of its own where the field is absent.
    if (dim != head_dim_ || model_type_ == "glm4") {
      if (architecture_.has_paired_rows) {
        throw UnsupportedError(
            str(metadata_.where(), ": metadata ", quote(key("rope.dimension_count")), ": expected ",
                head_dim_, ", the size of a head, got ", dim, ". Such models are not supported."));
      }
      config_["partial_rotary_factor"] = static_cast<double>(dim) / static_cast<double>(head_dim_);
    }
    Json scaling = scaling_of_metadata();
    if (header_.find("rope_freqs.weight") != nullptr) {
      scaling = scaling_of_factors("rope_freqs.weight", "rope_freqs.weight", dim);
      scaling["attention_factor"] = 1.0;
    } else if (header_.find("rope_factors_long.weight") != nullptr) {
      scaling = scaling_of_factors("rope_factors_short.weight", "rope_factors_long.weight", dim);
      add_number("attention_factor", "rope.scaling.attn_factor", scaling);
    }
    if (!scaling.empty()) config_["rope_scaling"] = std::move(scaling);
  }

  void add_number(const char* field, std::string_view name, Json& json) const {
    if (const auto value = metadata_.number(key(name))) json[field] = *value;
  }

  Json scaling_of_metadata() const {
    const std::string type = metadata_.string(key("rope.scaling.type")).value_or("");
    Json scaling = Json::object();
    if (type.empty() && metadata_.has(key("rope.scale_linear"))) {
      const double factor = *metadata_.number(key("rope.scale_linear"));
      if (factor != 1.0) scaling = {{"rope_type", "linear"}, {"factor", factor}};
      return scaling;
    }
    if (type.empty() || type == "none") return scaling;
    if (type != "linear" && type != "yarn") {
      throw UnsupportedError(str(metadata_.where(), ": metadata ", quote(key("rope.scaling.type")),
                                 ": expected none, linear, yarn, or tensors of factors, got ",
                                 quote(type), ". Convert the model again."));
    }
    scaling["rope_type"] = type;
    add_number("factor", "rope.scaling.factor", scaling);
    if (type == "linear") return scaling;
    add_number("attention_factor", "rope.scaling.attn_factor", scaling);
    add_number("beta_fast", "rope.scaling.yarn_beta_fast", scaling);
    add_number("beta_slow", "rope.scaling.yarn_beta_slow", scaling);
    const auto length = metadata_.integer(key("rope.scaling.original_context_length"), 1, kSizeMax);
    if (length) scaling["original_max_position_embeddings"] = *length;
    return scaling;
  }

  /// Factors that divide the frequencies, as the LongRoPE parameters that say the same.
  Json scaling_of_factors(const char* short_name, const char* long_name, int64_t dim) const {
    Json scaling = {{"rope_type", "longrope"},
                    {"short_factor", factors(short_name, dim)},
                    {"long_factor", factors(long_name, dim)}};
    const auto length = metadata_.integer(key("rope.scaling.original_context_length"), 1, kSizeMax);
    scaling["original_max_position_embeddings"] =
        length.value_or(config_["max_position_embeddings"].get<int64_t>());
    return scaling;
  }

  std::vector<double> factors(const char* name, int64_t dim) const {
    const GgufTensor* tensor = header_.find(name);
    if (tensor == nullptr || tensor->type->type != GgmlType::kF32 ||
        tensor->shape != Shape{dim / 2}) {
      throw CheckpointError(
          str(metadata_.where(), ": tensor ", quote(name), ": expected ", dim / 2,
              " values of type F32, got ",
              tensor == nullptr ? "none" : str(tensor->type->name, " ", tensor->shape),
              ". Convert the model again."));
    }
    std::vector<double> values;
    for (int64_t i = 0; i < dim / 2; ++i) {
      float value = 0;
      std::memcpy(&value, tensor->data + static_cast<size_t>(i) * sizeof(float), sizeof(value));
      if (!std::isfinite(value)) {
        throw CheckpointError(str(metadata_.where(), ": tensor ", quote(name),
                                  ": expected finite values, got ", value, " at ", i, "."));
      }
      values.push_back(value);
    }
    return values;
  }

  void add_biases() {
    const bool has_q_bias = header_.find("blk.0.attn_q.bias") != nullptr;
    if (model_type_ != "qwen2") config_["attention_bias"] = has_q_bias;
    if (architecture_.has_paired_rows) {  // Llama and its like
      config_["mlp_bias"] = header_.find("blk.0.ffn_gate.bias") != nullptr;
    }
  }

  void add_gemma() {
    const bool is_gemma2 = model_type_ == "gemma2";
    const bool is_27b = num_layers_ == (is_gemma2 ? kGemma2BlocksOf27b : kGemma3BlocksOf27b);
    config_["query_pre_attn_scalar"] =
        is_27b ? config_["hidden_size"].get<double>() / static_cast<double>(num_heads_)
               : static_cast<double>(head_dim_);
    config_["hidden_activation"] = "gelu_pytorch_tanh";
    const auto set_cap = [&](const char* field, std::string_view name) {
      const auto value = metadata_.number(key(name));
      if (value || !is_gemma2) config_[field] = value ? Json(*value) : Json();
    };
    set_cap("attn_logit_softcapping", "attn_logit_softcapping");
    set_cap("final_logit_softcapping", "final_logit_softcapping");
    if (is_gemma2) return;
    config_["rope_theta"] = metadata_.number(key("rope.freq_base")).value_or(1e6);
    config_["rope_local_base_freq"] = metadata_.number(key("rope.freq_base_swa")).value_or(10000.0);
    const std::string pattern = key("attention.sliding_window_pattern");
    if (!metadata_.is_array(pattern)) {
      const auto step = metadata_.integer(pattern, 1, kLayersMax);
      if (step) config_["sliding_window_pattern"] = *step;
      return;
    }
    const auto are_sliding = metadata_.booleans(pattern);
    for (const bool is_sliding : *are_sliding) {
      config_["layer_types"].push_back(is_sliding ? "sliding_attention" : "full_attention");
    }
  }

  /// Factors that llama.cpp has under other names.
  void add_granite() {
    struct Factor {
      const char* field;
      const char* name;
      bool is_required;  // llama.cpp has another default for it than transformers, or none
    };
    constexpr std::array kFactors = {Factor{"embedding_multiplier", "embedding_scale", false},
                                     Factor{"residual_multiplier", "residual_scale", false},
                                     Factor{"attention_multiplier", "attention.scale", true},
                                     Factor{"logits_scaling", "logit_scale", true}};
    for (const Factor& factor : kFactors) {
      add_number(factor.field, factor.name, config_);
      if (factor.is_required && !config_.contains(factor.field)) {
        metadata_.fail(key(factor.name),
                       "expected a number, got nothing. Convert the model again.");
      }
    }
  }

  /// OLMo 3's files are of the architecture olmo2.
  void add_olmo3() {
    const std::string pattern = key("attention.sliding_window_pattern");
    const auto are_sliding = metadata_.booleans(pattern);
    if (!are_sliding) {
      metadata_.fail(pattern,
                     "expected one entry for each block, got nothing. Convert the model "
                     "again.");
    }
    model_type_ = "olmo3";
    for (const bool is_sliding : *are_sliding) {
      config_["layer_types"].push_back(is_sliding ? "sliding_attention" : "full_attention");
    }
  }

  /// Mistral's files are of the architecture llama; those with a window say it.
  void add_window() {
    const auto window = metadata_.integer(key("attention.sliding_window"), 0, kSizeMax);
    if (!window || *window == 0) return;
    config_["sliding_window"] = *window;
    if (model_type_ == "llama") model_type_ = "mistral";
    if (model_type_ == "olmo2") return add_olmo3();
    if (!model_type_.starts_with("qwen")) return;
    throw UnsupportedError(str(metadata_.where(), ": metadata ",
                               quote(key("attention.sliding_window")), ": expected none for ",
                               architecture_.name, ", got ", *window,
                               ". Which layers have the window is not in the file; take the "
                               "model's safetensors directory."));
  }

  /// llama.cpp stores Mixtral as a llama with experts.
  void reject_experts() const {
    const auto count = metadata_.integer(key("expert_count"), 0, kSizeMax);
    if (!count || *count == 0 || model_type_ == "qwen3_moe") return;
    throw UnsupportedError(str(metadata_.where(), ": metadata ", quote(key("expert_count")),
                               ": expected none for ", architecture_.name, ", got ", *count,
                               ". Of GGUF files with experts, those of qwen3moe are read; take the "
                               "model's safetensors directory."));
  }

  void add_experts() {
    config_["num_experts"] = metadata_.required_integer(key("expert_count"), 1, kLayersMax);
    config_["num_experts_per_tok"] =
        metadata_.required_integer(key("expert_used_count"), 1, kLayersMax);
    config_["moe_intermediate_size"] =
        metadata_.required_integer(key("expert_feed_forward_length"), 1, kSizeMax);
    config_["norm_topk_prob"] = true;  // not in the metadata: true of all Qwen3-MoE models
    Json dense = Json::array();
    for (int64_t i = 0; i < num_layers_; ++i) {
      if (header_.find(str("blk.", i, ".ffn_gate_inp.weight")) == nullptr) dense.push_back(i);
    }
    config_["mlp_only_layers"] = std::move(dense);
  }

  /// The type that activations take from the weights: the dense type of most matrices; of a
  /// quantized model bfloat16 for Gemma, whose activations leave the range of float16.
  void add_types() {
    std::array<size_t, 3> counts = {};  // of f16, bf16, f32
    for (const GgufTensor& tensor : header_.tensors) {
      if (tensor.shape.size() < 2) continue;
      if (tensor.type->type == GgmlType::kF16) ++counts[0];
      if (tensor.type->type == GgmlType::kBf16) ++counts[1];
      if (tensor.type->type == GgmlType::kF32) ++counts[2];
      is_quantized_ = is_quantized_ || !tensor.type->dense;
    }
    constexpr std::array kNames = {"float16", "bfloat16", "float32"};
    const auto most = std::max_element(counts.begin(), counts.end()) - counts.begin();
    config_["dtype"] = is_quantized_ ? (architecture_.has_norm_offset ? "bfloat16" : "float16")
                                     : kNames[static_cast<size_t>(most)];
    if (is_quantized_) config_["quantization_config"] = {{"quant_method", "gguf"}};
  }

  const GgufHeader& header_;
  const GgufMetadata& metadata_;
  const GgufArchitecture& architecture_;
  std::string model_type_;
  int64_t num_layers_ = 0, num_heads_ = 0, head_dim_ = 0;
  bool is_quantized_ = false;
  Json config_ = Json::object();
};

/// Texts of tokens that end an answer, whatever the metadata call them: many files name one of them
/// only.
constexpr std::array<std::string_view, 7> kEndTexts = {
    "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>",     "<|end|>",
    "<|endoftext|>", "<end_of_turn>", "<|end_of_text|>"};
constexpr int64_t kControlType = 3;

}  // namespace

std::string make_config_text(const GgufHeader& header) { return ConfigMaker(header).make(); }

std::string make_generation_config_text(const GgufMetadata& metadata) {
  std::vector<int64_t> ids;
  const auto add = [&](int64_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto id = metadata.integer(str("tokenizer.ggml.", name, "_token_id"), 0, kSizeMax);
    if (id) add(*id);
  }
  const auto tokens = metadata.strings("tokenizer.ggml.tokens");
  const auto types = metadata.integers("tokenizer.ggml.token_type");
  const size_t num_typed = tokens && types ? std::min(tokens->size(), types->size()) : 0;
  for (size_t i = 0; i < num_typed; ++i) {
    if ((*types)[i] != kControlType) continue;
    const bool is_end =
        std::find(kEndTexts.begin(), kEndTexts.end(), (*tokens)[i]) != kEndTexts.end();
    if (is_end) add(static_cast<int64_t>(i));
  }
  Json config = Json::object();
  if (!ids.empty()) config["eos_token_id"] = ids;
  return config.dump();
}

}  // namespace halley
