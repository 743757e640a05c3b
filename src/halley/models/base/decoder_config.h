// Everything that distinguishes one decoder-only model family from another, as data. A family maps
// its config.json and weight names to this; the decoder (decoder.h) runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/kernels/activation/activation.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/quant/base/linear_spec.h"

namespace halley {

enum class NormKind : uint8_t { kRms, kLayer };

/// A norm's parameters: names of the checkpoint's tensors.
struct NormSpec {
  std::string weight_name;
  std::string bias_name;  // empty: none
};

/// inv_freq and factor of one rotary embedding; layers refer to it by index.
struct RopeSpec {
  std::vector<float> inv_freq;    // rotary_dim / 2
  float attention_factor = 1.0f;  // on cos and sin
  bool is_interleaved = false;    // GLM: turns columns 2i and 2i + 1, not i and i + rotary_dim / 2
};

struct MlpSpec {
  std::optional<LinearSpec> router;  // experts where set
  std::vector<LinearSpec> gate_up;   // one, or one an expert; ungated MLPs have `up` here
  std::vector<LinearSpec> down;
  int64_t first_expert = 0;  // the router's number of that of gate_up[0] and down[0]
  int64_t num_experts_per_token = 0;
  bool is_normalized = true;  // expert weights divided by their sum
};

/// The columns that a norm of queries or keys takes together.
enum class QkNormExtent : uint8_t { kHead, kAllHeads };

struct LayerSpec {
  std::optional<NormSpec> input_norm;          // before attention; OLMo 2: none
  std::optional<NormSpec> attention_out_norm;  // Gemma: on the block's output, before the residual
  std::optional<NormSpec> mlp_norm;            // before the MLP; OLMo 2: none
  std::optional<NormSpec> mlp_out_norm;        // Gemma
  std::optional<NormSpec> q_norm, k_norm;      // on queries and keys, before their rotation
  LinearSpec qkv, o;
  MlpSpec mlp;
  int64_t window = 0;   // 0: full attention
  int rope_index = -1;  // into DecoderConfig::ropes; -1: none
};

/// One of several ranks that run a decoder together (slice_decoder.h).
struct RankShare {
  int rank = 0, num_ranks = 1;    // that divide every layer
  int stage = 0, num_stages = 1;  // that divide the sequence of layers
  InputRange vocabulary = {};     // the tokens whose embeddings and logits it has; of several ranks
  int64_t first_layer = 0;        // of the whole decoder's
  bool has_whole_experts = false;  // some of the experts, instead of a part of each

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage == num_stages - 1; }
};

struct DecoderConfig {
  std::string family;         // "llama"
  DType dtype = DType::kF16;  // of the checkpoint's weights, as declared in config.json
  int64_t hidden_size = 0, num_layers = 0, vocab_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, intermediate_size = 0;
  int64_t max_positions = 0;       // longest sequence, prompt and output together
  int64_t declared_positions = 0;  // max_position_embeddings
  NormKind norm_kind = NormKind::kRms;
  float norm_epsilon = 1e-6f;
  float norm_weight_offset = 0;  // 1: Gemma
  Activation activation = Activation::kSilu;
  bool is_gated = true;
  QkNormExtent qk_norm_extent = QkNormExtent::kHead;
  float attention_scale = 0;
  float attention_soft_cap = 0, logits_soft_cap = 0;  // 0: none
  float logits_scale = 1;                             // Granite: 1 / logits_scaling
  float embedding_scale = 1;            // Gemma: sqrt(hidden_size), rounded to the weights' type
  std::string embedding_name;           // "model.embed_tokens.weight"
  std::string position_embedding_name;  // OPT: learned positions; empty: none
  int64_t position_offset = 0;          // OPT: 2
  NormSpec final_norm;
  std::optional<LinearSpec> lm_head;  // absent: tied to the embedding
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  std::vector<KvScales> kv_scales;  // of each layer, for an fp8 cache; empty: none
  std::optional<KvDType> kv_dtype;  // of the cache, as the checkpoint declares it
  /// Suffixes of checkpoint tensors that are not needed ("...rotary_emb.inv_freq").
  std::vector<std::string> ignored_suffixes;
  /// Prefixes of tensors of parts other than text ("vision_tower."), which are not loaded.
  std::vector<std::string> ignored_prefixes;
  int64_t num_stored_positions = 0;  // OPT: rows of the position table less position_offset
  /// With tied embeddings: an output matrix of this name may be in the checkpoint if it equals the
  /// embedding byte for byte.
  std::string tied_output_name;
  std::string where;  // config.json's path, for messages
  /// One of several ranks has its own layers, heads, MLPs and part of the vocabulary, and as many
  /// as they are; vocab_size is whole. The embedding is used by the first stage, the final norm and
  /// the output layer by the last.
  RankShare share = {};

  /// The stage uses the table: for tokens, or as a tied output layer.
  bool has_embedding() const { return share.is_first() || (share.is_last() && !lm_head); }
  /// Columns that one norm of queries takes together, and one of keys.
  int64_t q_norm_size() const {
    return qk_norm_extent == QkNormExtent::kHead ? head_dim : num_heads * head_dim;
  }
  int64_t k_norm_size() const {
    return qk_norm_extent == QkNormExtent::kHead ? head_dim : num_kv_heads * head_dim;
  }
  /// The tokens whose embeddings and logits are here.
  InputRange vocabulary() const {
    return share.num_ranks == 1 ? InputRange{0, vocab_size} : share.vocabulary;
  }
};

}  // namespace halley
