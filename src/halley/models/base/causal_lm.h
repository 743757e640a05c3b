// A loaded language model as the engine sees it: one forward over a ragged batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

/// The KV cache of all layers; its storage belongs to whoever made it.
struct KvCacheView {
  std::span<const KvLayerView> layers;
};

/// One step's work. Rows of the batch are tokens; a sequence's tokens are consecutive.
struct ForwardBatch {
  std::span<const int32_t> token_ids;        // [M]
  std::span<const BatchSequence> sequences;  // cover all rows in order
  std::span<const int32_t> logit_rows;       // rows whose next-token logits are wanted, ascending
};

/// Fixed facts that the engine plans with.
struct ModelShape {
  int64_t num_layers = 0, num_kv_heads = 0, head_dim = 0, vocab_size = 0;
  int64_t max_positions = 0;
  /// What the checkpoint states, else the weights' 16-bit type; f32 for f32 weights.
  KvDType kv_dtype_default = KvDType::kF16;
  /// Of each layer, where the checkpoint has scales for an fp8 cache; else empty, and every token
  /// and head gets its own.
  std::vector<KvScales> kv_scales = {};
};

/// Bytes that one token takes in a cache of this type, in all layers, scales included.
size_t kv_bytes_per_token(const ModelShape& shape, KvDType dtype);

/// The packed weights that a decode step reads, for measurements.
struct WeightMemory {
  using Bytes = std::span<const std::byte>;
  std::vector<Bytes> always_read;  // by every step
  std::vector<Bytes> experts;      // by those steps that route a token there
  double expert_share = 0;         // of `experts` that one token's routing reads
};

/// Not thread-safe: one forward at a time.
class CausalLm {
 public:
  virtual ~CausalLm() = default;
  virtual const ModelShape& shape() const = 0;
  /// Appends the batch's tokens to the cache (positions follow num_past_tokens) and computes logits
  /// [logit_rows.size(), vocab_size] f32. A row's logits are the same bits in any batch and
  /// chunking. Throws InputError, before anything is written, where a token id is outside the
  /// vocabulary or a sequence is longer than max_positions.
  virtual void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) = 0;
  /// Valid as long as the model. Empty for a model without weights.
  virtual WeightMemory weight_memory() const { return {}; }
};

}  // namespace halley
