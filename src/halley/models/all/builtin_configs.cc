// Built-in shapes: config.json of known models, for runs with synthetic weights.
#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/all/load_model.h"

namespace halley {
namespace {

struct BuiltinConfig {
  const char* name;
  const char* text;
};

constexpr std::array kBuiltinConfigs = {
    BuiltinConfig{"demo-21m", R"({"model_type": "llama", "dtype": "float16", "hidden_size": 512,
      "num_hidden_layers": 6, "intermediate_size": 1408, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 8192, "hidden_act": "silu",
      "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": true})"},
    BuiltinConfig{"llama-1b", R"({"model_type": "llama", "dtype": "float16", "hidden_size": 2048,
      "num_hidden_layers": 22, "intermediate_size": 5632, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192, "hidden_act": "silu",
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": true})"},
    BuiltinConfig{"llama-3-8b", R"({"model_type": "llama", "dtype": "bfloat16", "hidden_size": 4096,
      "num_hidden_layers": 32, "intermediate_size": 14336, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu",
      "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
      "tie_word_embeddings": false})"},
    BuiltinConfig{"llama-3-70b", R"({"model_type": "llama", "dtype": "bfloat16",
      "hidden_size": 8192, "num_hidden_layers": 80, "intermediate_size": 28672,
      "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
      "hidden_act": "silu", "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "tie_word_embeddings": false})"},
    BuiltinConfig{"llama-3.1-8b", R"({"model_type": "llama", "dtype": "bfloat16",
      "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
      "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": false})"},
    BuiltinConfig{"mistral-7b", R"({"model_type": "mistral", "dtype": "bfloat16",
      "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768,
      "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false})"},
    BuiltinConfig{"qwen2-7b", R"({"model_type": "qwen2", "dtype": "bfloat16", "hidden_size": 3584,
      "num_hidden_layers": 28, "intermediate_size": 18944, "num_attention_heads": 28,
      "num_key_value_heads": 4, "vocab_size": 152064, "hidden_act": "silu",
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "use_sliding_window": false, "tie_word_embeddings": false})"},
    BuiltinConfig{"qwen2-72b", R"({"model_type": "qwen2", "dtype": "bfloat16", "hidden_size": 8192,
      "num_hidden_layers": 80, "intermediate_size": 29568, "num_attention_heads": 64,
      "num_key_value_heads": 8, "vocab_size": 152064, "hidden_act": "silu",
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "use_sliding_window": false, "tie_word_embeddings": false})"},
    BuiltinConfig{"qwen3-8b", R"({"model_type": "qwen3", "dtype": "bfloat16", "hidden_size": 4096,
      "num_hidden_layers": 36, "intermediate_size": 12288, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "hidden_act": "silu",
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "use_sliding_window": false, "tie_word_embeddings": false})"},
    BuiltinConfig{"qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "dtype": "bfloat16",
      "hidden_size": 2048, "num_hidden_layers": 48, "intermediate_size": 6144,
      "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "vocab_size": 151936, "hidden_act": "silu",
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
      "use_sliding_window": false, "tie_word_embeddings": false})"},
    BuiltinConfig{"gemma2-9b", R"({"model_type": "gemma2", "dtype": "bfloat16",
      "hidden_size": 3584, "num_hidden_layers": 42, "intermediate_size": 14336,
      "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
      "query_pre_attn_scalar": 256, "vocab_size": 256000,
      "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
      "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
      "rms_norm_eps": 1e-6, "rope_theta": 10000.0})"},
    BuiltinConfig{"mixtral-8x7b", R"({"model_type": "mixtral", "dtype": "bfloat16",
      "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336,
      "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
      "num_experts_per_tok": 2, "vocab_size": 32000, "hidden_act": "silu",
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
      "sliding_window": null, "tie_word_embeddings": false})"},
};

}  // namespace

HfConfig builtin_config(const std::string& name) {
  std::string known;
  for (const BuiltinConfig& entry : kBuiltinConfigs) {
    if (name == entry.name) return HfConfig::parse(entry.text, "built-in " + name);
    known += str(known.empty() ? "" : ", ", entry.name);
  }
  throw InputError(str("built-in shape: expected one of ", known, ", got ", quote(name), "."));
}

std::vector<std::string> builtin_config_names() {
  std::vector<std::string> names;
  for (const BuiltinConfig& entry : kBuiltinConfigs) names.emplace_back(entry.name);
  return names;
}

}  // namespace halley
