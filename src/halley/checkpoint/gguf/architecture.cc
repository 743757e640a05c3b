#include "halley/checkpoint/gguf/architecture.h"

#include <array>
#include <charconv>
#include <optional>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr int64_t kHeadsMax = 4096;
constexpr int64_t kExpertsMax = 1024;
/// Far above every published model: a stack of experts of a few bytes has as many names as any.
constexpr size_t kNamesMax = 200'000;
constexpr std::string_view kBlock = "blk.";

constexpr std::array kSharedNames = {
    GgufTensorName{"attn_norm", "input_layernorm"},
    GgufTensorName{"attn_q", "self_attn.q_proj"},
    GgufTensorName{"attn_k", "self_attn.k_proj"},
    GgufTensorName{"attn_v", "self_attn.v_proj"},
    GgufTensorName{"attn_qkv", "self_attn.qkv_proj"},
    GgufTensorName{"attn_output", "self_attn.o_proj"},
    GgufTensorName{"attn_q_norm", "self_attn.q_norm"},
    GgufTensorName{"attn_k_norm", "self_attn.k_norm"},
    GgufTensorName{"ffn_norm", "post_attention_layernorm"},
    GgufTensorName{"ffn_gate", "mlp.gate_proj"},
    GgufTensorName{"ffn_up", "mlp.up_proj"},
    GgufTensorName{"ffn_down", "mlp.down_proj"},
    GgufTensorName{"ffn_gate_inp", "mlp.gate"},
    GgufTensorName{"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    GgufTensorName{"ffn_up_exps", "mlp.experts.*.up_proj"},
    GgufTensorName{"ffn_down_exps", "mlp.experts.*.down_proj"},
};
constexpr std::array kGemmaNames = {
    GgufTensorName{"post_attention_norm", "post_attention_layernorm"},
    GgufTensorName{"ffn_norm", "pre_feedforward_layernorm"},
    GgufTensorName{"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr std::array kOlmoNames = {
    GgufTensorName{"post_attention_norm", "post_attention_layernorm"},
    GgufTensorName{"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr std::array kGlmNames = {
    GgufTensorName{"post_attention_norm", "post_self_attn_layernorm"},
    GgufTensorName{"post_ffw_norm", "post_mlp_layernorm"},
    GgufTensorName{"ffn_up", "mlp.gate_up_proj"},
};
constexpr std::array kPhiNames = {GgufTensorName{"ffn_up", "mlp.gate_up_proj"}};
constexpr std::array kModelNames = {
    GgufTensorName{"token_embd", "model.embed_tokens"},
    GgufTensorName{"output_norm", "model.norm"},
    GgufTensorName{"output", "lm_head"},
};
/// Tensors that are parameters of the rotary embedding.
constexpr std::array<std::string_view, 3> kRopeTensors = {
    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};

constexpr std::array kArchitectures = {
    GgufArchitecture{.name = "llama", .model_type = "llama", .names = {}, .has_paired_rows = true},
    GgufArchitecture{.name = "qwen2", .model_type = "qwen2", .names = {}},
    GgufArchitecture{.name = "qwen3", .model_type = "qwen3", .names = {}},
    GgufArchitecture{.name = "qwen3moe", .model_type = "qwen3_moe", .names = {}},
    GgufArchitecture{
        .name = "gemma2", .model_type = "gemma2", .names = kGemmaNames, .has_norm_offset = true},
    GgufArchitecture{.name = "gemma3",
                     .model_type = "gemma3_text",
                     .names = kGemmaNames,
                     .has_norm_offset = true},
    GgufArchitecture{.name = "phi3", .model_type = "phi3", .names = kPhiNames},
    GgufArchitecture{
        .name = "smollm3", .model_type = "smollm3", .names = {}, .has_paired_rows = true},
    GgufArchitecture{.name = "olmo2", .model_type = "olmo2", .names = kOlmoNames},
    GgufArchitecture{
        .name = "granite", .model_type = "granite", .names = {}, .has_paired_rows = true},
    GgufArchitecture{.name = "glm4", .model_type = "glm4", .names = kGlmNames},
    // The text model alone: images would need a file of their own.
    GgufArchitecture{.name = "qwen2vl", .model_type = "qwen2", .names = {}},
};

const char* find_name(std::span<const GgufTensorName> names, std::string_view gguf) {
  for (const GgufTensorName& entry : names) {
    if (gguf == entry.gguf) return entry.checkpoint;
  }
  return nullptr;
}

/// "blk.3.attn_q.weight" in its pieces; `stem` is "attn_q".
struct NamePieces {
  std::string_view block;  // "3"; empty: of no block
  std::string_view stem;
  std::string_view ending;  // "weight" or "bias"
};

std::optional<NamePieces> split_name(std::string_view name) {
  NamePieces pieces;
  if (name.starts_with(kBlock)) {
    name.remove_prefix(kBlock.size());
    const size_t dot = name.find('.');
    pieces.block = name.substr(0, dot);
    int index = 0;
    const auto [end, error] =
        std::from_chars(pieces.block.data(), pieces.block.data() + pieces.block.size(), index);
    const bool is_index = error == std::errc() && index >= 0 &&
                          end == pieces.block.data() + pieces.block.size() &&
                          (index == 0 ? pieces.block == "0" : pieces.block.front() != '0');
    if (dot == std::string_view::npos || !is_index) return std::nullopt;
    name.remove_prefix(dot + 1);
  }
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  pieces.stem = name.substr(0, dot);
  pieces.ending = name.substr(dot + 1);
  if (pieces.ending != "weight" && pieces.ending != "bias") return std::nullopt;
  return pieces;
}

/// The name in a Hugging Face checkpoint with '*' for an expert's number; nothing where the
/// architecture has no such tensor.
std::optional<std::string> checkpoint_name(const GgufArchitecture& architecture,
                                           const NamePieces& pieces) {
  if (pieces.block.empty()) {
    const char* name = find_name(kModelNames, pieces.stem);
    if (name == nullptr) return std::nullopt;
    return str(name, ".", pieces.ending);
  }
  const char* name = find_name(architecture.names, pieces.stem);
  if (name == nullptr) name = find_name(kSharedNames, pieces.stem);
  if (name == nullptr) return std::nullopt;
  return str("model.layers.", pieces.block, ".", name, ".", pieces.ending);
}

class Namer {
 public:
  explicit Namer(const GgufHeader& header)
      : header_(header), architecture_(find_gguf_architecture(header.metadata)) {}

  std::vector<GgufNamedTensor> name_all() {
    for (const GgufTensor& tensor : header_.tensors) {
      bool is_rope = false;
      for (const std::string_view name : kRopeTensors) is_rope |= tensor.name.ends_with(name);
      if (!is_rope) add(tensor);
    }
    return std::move(named_);
  }

 private:
  void add(const GgufTensor& tensor) {
    GgufNamedTensor named{.name = tensor.name, .tensor = &tensor};
    const auto pieces = split_name(tensor.name);
    const auto name = pieces ? checkpoint_name(architecture_, *pieces) : std::nullopt;
    if (!name) return push(std::move(named));
    named.name = *name;
    set_rewrite(*pieces, named);
    const size_t star = name->find('*');
    if (star == std::string::npos) return push(std::move(named));
    if (tensor.shape.size() != 3 || tensor.shape[0] > kExpertsMax) {
      fail(tensor, str("a shape of at most ", kExpertsMax, " experts, rows and columns"));
    }
    for (named.expert = 0; named.expert < tensor.shape[0]; ++named.expert) {
      GgufNamedTensor expert = named;
      expert.name.replace(star, 1, str(named.expert));
      push(std::move(expert));
    }
  }

  void set_rewrite(const NamePieces& pieces, GgufNamedTensor& named) const {
    const bool is_q = pieces.stem == "attn_q", is_k = pieces.stem == "attn_k";
    if (architecture_.has_paired_rows && (is_q || is_k)) {
      named.rewrite = GgufRewrite::kUnpairRows;
      named.num_heads = num_heads(is_k);
      const int64_t num_rows = named.tensor->shape[0];
      const bool has_rows = named.tensor->shape.size() == (pieces.ending == "bias" ? 1 : 2);
      if (!has_rows || num_rows % (2 * named.num_heads) != 0) {
        fail(*named.tensor, str("an even number of rows for each of ", named.num_heads, " heads"));
      }
    }
    if (architecture_.has_norm_offset && pieces.stem.ends_with("_norm")) {
      named.rewrite = GgufRewrite::kSubtractOne;
      if (named.tensor->type->type != GgmlType::kF32) fail(*named.tensor, "a norm of type F32");
    }
  }

  int64_t num_heads(bool is_kv) const {
    const GgufMetadata& metadata = header_.metadata;
    const std::string key = gguf_key(metadata, "attention.head_count");
    const int64_t all = metadata.required_integer(key, 1, kHeadsMax);
    return is_kv ? metadata.integer(key + "_kv", 1, kHeadsMax).value_or(all) : all;
  }

  void push(GgufNamedTensor named) {
    if (named_.size() == kNamesMax) {
      fail(*named.tensor, str("at most ", kNamesMax, " tensors and experts in the file"));
    }
    named.name += named.tensor->type->suffix;
    named_.push_back(std::move(named));
  }

  [[noreturn]] void fail(const GgufTensor& tensor, const std::string& expected) const {
    throw CheckpointError(str(header_.metadata.where(), ": tensor ", quote(tensor.name),
                              ": expected ", expected, ", got ", tensor.type->name, " ",
                              tensor.shape, ". Convert the model again."));
  }

  const GgufHeader& header_;
  const GgufArchitecture& architecture_;
  std::vector<GgufNamedTensor> named_;
};

std::string name_of_architecture(const GgufMetadata& metadata) {
  const auto name = metadata.string("general.architecture");
  if (!name) metadata.fail("general.architecture", "expected a name, got nothing.");
  return *name;
}

}  // namespace

const GgufArchitecture& find_gguf_architecture(const GgufMetadata& metadata) {
  const std::string name = name_of_architecture(metadata);
  std::string known;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (name == architecture.name) return architecture;
    known += str(known.empty() ? "" : ", ", architecture.name);
  }
  throw UnsupportedError(str(
      metadata.where(), ": metadata \"general.architecture\": expected one of ", known, ", got ",
      quote(name), ". Take the model's safetensors directory if `halley` has its family."));
}

std::vector<GgufNamedTensor> name_gguf_tensors(const GgufHeader& header) {
  return Namer(header).name_all();
}

std::string gguf_key(const GgufMetadata& metadata, std::string_view key) {
  return str(name_of_architecture(metadata), ".", key);
}

}  // namespace halley
