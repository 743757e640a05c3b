// A model whose weights are divided among several ranks, as its caller on rank 0 sees it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/parallel/rank_links.h"
#include "halley/models/parallel/rank_messages.h"
#include "halley/models/parallel/ranked_runner.h"

namespace halley {

/// The ranks of a model, from rank 0's side: its links. The destructor waits until the others have
/// ended.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual RankLinks& links() = 0;
};

/// Forwards every call to rank 0's share, after it has told the other ranks, which follow
/// (follow_rank.h). Throws DeviceError where a rank has died or does not come in time.
class RankedModel final : public CausalLm {
 public:
  /// `own` is rank 0's share, which runs in `context`; that must outlive this object, whose
  /// destructor ends the other ranks.
  RankedModel(std::unique_ptr<CausalLm> own, const ExecContext& context,
              std::unique_ptr<RankGroup> group);
  ~RankedModel() override;

  /// Has the key and value heads of rank 0.
  const ModelShape& shape() const override { return shape_; }
  void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) override;
  int num_stages() const override { return links_.share().num_stages; }
  void begin(const ForwardBatch& batch, const KvCacheView& cache) override;
  void finish(Matrix logits) override;
  std::vector<OpTime> profile(const ForwardBatch& batch, const KvCacheView& cache,
                              Matrix logits) override;
  std::optional<int64_t> prepare(const StepLimits& limits) override;
  StepRunner* step_runner() override;
  std::unique_ptr<KvMemory> make_kv_memory(size_t num_bytes) const override;
  std::string device_name() const override { return own_->device_name(); }
  std::vector<PrecisionLevel> precision_levels(KvDType kv_dtype) const override {
    return own_->precision_levels(kv_dtype);
  }
  /// Lists the weights of rank 0.
  WeightMemory weight_memory() const override { return own_->weight_memory(); }

 private:
  class Memory;

  /// A step whose logits come from the last stage.
  struct Flight {
    std::vector<float> logits;
    bool has_logits = false;
  };

  /// Tells the ranks of a step.
  void tell_step(const ForwardBatch& batch, const KvCacheView& cache);
  /// Those of the cache; empty where they are those that were sent last.
  std::vector<RankLayer> new_layers(const KvCacheView& cache);
  Precision precision_of(const ForwardBatch& batch) const;
  void receive_logits_ahead();
  std::vector<RankLayer> layers_of(const KvCacheView& cache) const;

  const std::unique_ptr<RankGroup> group_;  // ends last
  const std::unique_ptr<CausalLm> own_;
  const ExecContext& context_;
  RankLinks& links_;
  ModelShape shape_;
  std::vector<RankLayer> sent_layers_;  // of the last step
  std::unique_ptr<RankedRunner> runner_;
  std::deque<Flight> flights_;  // of several stages, the oldest first
  mutable uint64_t num_memories_ = 0;
  mutable std::map<const std::byte*, MemoryRequest>
      memories_;  // that live, by their addresses here
};

}  // namespace halley
