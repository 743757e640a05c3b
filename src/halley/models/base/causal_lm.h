// A loaded language model as the engine sees it: one forward over a ragged batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/models/base/precision_level.h"

namespace halley {

/// The KV cache of all layers. Does not own its storage.
struct KvCacheView {
  std::span<const KvLayerView> layers;
};

struct Adapter;

/// One step's work. Rows of the batch are tokens; a sequence's tokens are consecutive.
struct ForwardBatch {
  std::span<const int32_t> token_ids;        // [M]
  std::span<const BatchSequence> sequences;  // cover all rows in order
  std::span<const int32_t> logit_rows;       // rows whose next-token logits are wanted, ascending
  /// The precision of layers whose weights hold two; absent: ExecContext's.
  std::optional<Precision> precision = {};
  /// Rows whose hidden states behind the final norm are wanted, ascending, and where they go:
  /// [hidden_rows.size(), hidden_size] f32. For models with a ModelShape::hidden_size alone.
  std::span<const int32_t> hidden_rows = {};
  Matrix hidden = {};
  /// Each sequence's adapter (low_rank.h), null for none; empty: there are none. For models that
  /// takes_adapters() alone.
  std::span<const Adapter* const> adapters = {};
};

/// Fixed sizes that the engine plans with.
struct ModelShape {
  int64_t num_layers = 0, num_kv_heads = 0, head_dim = 0, vocab_size = 0;
  int64_t max_positions = 0;
  /// The type that the checkpoint declares, else the weights' 16-bit type; f32 for f32 weights.
  KvDType kv_dtype_default = KvDType::kF16;
  /// Per-layer scales, where the checkpoint has them for an fp8 cache; else empty, and scales are
  /// per token and head.
  std::vector<KvScales> kv_scales = {};
  /// Caches that a KV cache of this shape stands for, where several ranks have one each in the
  /// memory of one host.
  int64_t num_caches = 1;
  /// Width of the hidden states that a step gives on request; 0: it gives none.
  int64_t hidden_size = 0;
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

/// The largest steps that will be run, so that a model can set its memory aside once.
struct StepLimits {
  int64_t num_sequences = 0;   // of a step
  int64_t num_rows = 0;        // of a step
  int64_t num_logit_rows = 0;  // of a step, for the host or for token choice
  int64_t max_length = 0;      // of a sequence
  KvDType kv_dtype = KvDType::kF16;
  int64_t page_tokens = 16;
};

/// Memory for pages of a KV cache, where the model runs.
class KvMemory {
 public:
  virtual ~KvMemory() = default;
  virtual std::byte* data() = 0;
};

/// One operation of a step.
struct OpTime {
  std::string name;  // "embedding", "layers.0.qkv", "layers.0.attention", "output"
  double start_us = 0, duration_us = 0;
};

class StepRunner;

/// Not thread-safe: one forward at a time.
class CausalLm {
 public:
  virtual ~CausalLm() = default;
  virtual const ModelShape& shape() const = 0;
  /// Appends the batch's tokens to the cache (positions follow num_past_tokens) and computes logits
  /// [logit_rows.size(), vocab_size] f32, and the hidden states that the batch asks for. A row's
  /// results are the same bits in any batch and chunking. Throws InputError, before anything is
  /// written, where a token id is outside the vocabulary or a sequence is longer than
  /// max_positions.
  virtual void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) = 0;

  /// Steps that can be under way at once, in the stages of a pipeline. With more than one,
  /// forward() may be called in two halves: begin() starts a step and throws what forward() throws;
  /// finish() waits for the oldest that has begun and gives its logits. At most as many are under
  /// way, and none during another call.
  virtual int num_stages() const { return 1; }
  virtual void begin(const ForwardBatch& batch, const KvCacheView& cache);
  virtual void finish(Matrix logits);
  /// As forward(), one operation after the other, each with its time.
  virtual std::vector<OpTime> profile(const ForwardBatch& batch, const KvCacheView& cache,
                                      Matrix logits);

  /// Costs of operations on a device that overlaps them (PDL): first "step" with the time of the
  /// whole step, then for each name without its layer the time by which the step gets shorter when
  /// those operations are left out. Empty where operations run one by one.
  virtual std::vector<OpTime> op_costs(const ForwardBatch&, const KvCacheView&, Matrix) {
    return {};
  }

  /// Allocates all memory that steps within the limits need, other than the KV cache. Call it
  /// before the cache is made, and again only when no cache exists. Returns the bytes that a cache
  /// may take where the model runs on a device with memory of its own; nothing where that is the
  /// host's memory, which the caller divides. Throws DeviceError where the memory does not suffice,
  /// UnsupportedError where the device does not support the request.
  virtual std::optional<int64_t> prepare(const StepLimits& limits);
  /// Allocates memory for KV pages. Throws DeviceError where there is not enough.
  virtual std::unique_ptr<KvMemory> make_kv_memory(size_t num_bytes) const;
  /// Null: the caller samples tokens from logits. Valid as long as the model; to be used after
  /// prepare().
  virtual StepRunner* step_runner() { return nullptr; }
  /// "cpu", or the name of the device.
  virtual std::string device_name() const { return "cpu"; }

  /// Whether steps may have adapters.
  virtual bool takes_adapters() const { return false; }

  /// The precisions that a step may choose from, the best first, with a cache of this type. Empty
  /// where there is only one.
  virtual std::vector<PrecisionLevel> precision_levels(KvDType) const { return {}; }

  /// Valid as long as the model. Empty for a model without weights. In memory of the device; where
  /// that is not the host's, only sizes are of use.
  virtual WeightMemory weight_memory() const { return {}; }
};

}  // namespace halley
