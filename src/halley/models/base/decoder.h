// The one decoder that runs every family: a DecoderConfig and its weights as a CausalLm.
#pragma once

#include <vector>

#include "halley/core/exec_context.h"
#include "halley/kernels/rope/rope.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/base/stage_exchange.h"
#include "halley/models/base/workspace.h"
#include "halley/parallel/base/communicator.h"

namespace halley {

class OpClock;
struct DecoderStep;

class Decoder final : public CausalLm {
 public:
  /// `context` must outlive the decoder. `weights` were loaded from `config`. `ranks` connects it
  /// with the others that divide its layers: all run the same steps at the same time. `stages`
  /// connects it with the stages around its own. Both outlive the decoder; null where there are no
  /// others.
  Decoder(ExecContext& context, DecoderConfig config, DecoderWeights weights,
          Communicator* ranks = nullptr, StageExchange* stages = nullptr);

  const ModelShape& shape() const override { return shape_; }
  const DecoderConfig& config() const { return config_; }
  /// Throws InputError where a token id is not in the vocabulary or a position is beyond
  /// max_positions; the cache is untouched then. Stages but the last leave the logits as they are.
  void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) override;
  /// Each operation of a layer (input norm, rotary embedding, ...) has a name of its own; the GEMMs
  /// of experts are named as an MLP's, "layers.0.gate_up".
  std::vector<OpTime> profile(const ForwardBatch& batch, const KvCacheView& cache,
                              Matrix logits) override;
  std::vector<PrecisionLevel> precision_levels(KvDType kv_dtype) const override;
  /// Ranks and stages have a part of a layer's inputs and outputs, or of the sequences.
  bool takes_adapters() const override { return ranks_ == nullptr && stages_ == nullptr; }
  WeightMemory weight_memory() const override {
    return memory_of(weights_, config_, context_.precision);
  }

 private:
  void set_positions(const ForwardBatch& batch);
  void embed(const ForwardBatch& batch, Matrix hidden);
  void embed_tokens(const ForwardBatch& batch, Matrix hidden);
  void run(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits, OpClock* clock);
  void compute_hidden(const DecoderStep& step, Matrix hidden) const;
  void compute_logits(const DecoderStep& step, Matrix hidden, Matrix logits);

  ExecContext& context_;
  DecoderConfig config_;
  DecoderWeights weights_;
  ModelShape shape_;
  Communicator* const ranks_;
  StageExchange* const stages_;
  Workspace workspace_;
  std::vector<int32_t> own_ids_;        // rows of this rank's table, 0 for others' tokens
  std::vector<int32_t> positions_;      // of each row
  std::vector<int32_t> position_rows_;  // into the table of learned positions
  std::vector<RopeAngles> angles_;
};

/// Shape of the decoder's cache and vocabulary.
ModelShape shape_of(const DecoderConfig& config);

}  // namespace halley
