#include "halley/models/base/decoder.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/kernels/activation/activation.h"
#include "halley/kernels/embedding/embedding.h"
#include "halley/kernels/norm/norm.h"
#include "halley/models/base/check_step.h"
#include "halley/models/base/decoder_step.h"
#include "halley/models/base/rank_sums.h"
#include "halley/models/base/step_cost.h"

namespace halley {

namespace {

void copy_rows(std::span<const int32_t> rows, ConstMatrix from, Matrix to) {
  for (int64_t i = 0; i < to.num_rows; ++i) {
    std::memcpy(to.row<float>(i), from.row<float>(rows[static_cast<size_t>(i)]),
                static_cast<size_t>(to.num_cols) * sizeof(float));
  }
}

/// Sets the context's precision for a step that says its own.
class PrecisionScope {
 public:
  PrecisionScope(ExecContext& context, std::optional<Precision> precision)
      : context_(context), before_(context.precision) {
    if (precision) context_.precision = *precision;
  }
  ~PrecisionScope() { context_.precision = before_; }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  ExecContext& context_;
  const Precision before_;
};

}  // namespace

ModelShape shape_of(const DecoderConfig& config) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .vocab_size = config.vocab_size,
          .max_positions = config.max_positions,
          .kv_dtype_default = config.kv_dtype.value_or(kv_dtype_of(config.dtype)),
          .kv_scales = config.kv_scales,
          // The last stage alone has them, and gives logits to the first one, but nothing else.
          .hidden_size = config.share.num_stages == 1 ? config.hidden_size : 0};
}

Decoder::Decoder(ExecContext& context, DecoderConfig config, DecoderWeights weights,
                 Communicator* ranks, StageExchange* stages)
    : context_(context),
      config_(std::move(config)),
      weights_(std::move(weights)),
      shape_(shape_of(config_)),
      ranks_(ranks),
      stages_(stages),
      angles_(config_.ropes.size()) {
  HALLEY_CHECK((ranks_ == nullptr ? 1 : ranks_->num_ranks()) == config_.share.num_ranks,
               config_.share.num_ranks);
  HALLEY_CHECK((stages_ != nullptr) == (config_.share.num_stages > 1), config_.share.num_stages);
  HALLEY_CHECK(weights_.layers.size() == config_.layers.size(), weights_.layers.size(),
               config_.layers.size());
}

void Decoder::set_positions(const ForwardBatch& batch) {
  positions_.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    for (int64_t i = 0; i < sequence.num_new_tokens; ++i) {
      positions_.push_back(static_cast<int32_t>(sequence.num_past_tokens + i));
    }
  }
  compute_angles(context_, config_, positions_, angles_);
}

/// A token's embedding is in one rank; the others add zeros.
void Decoder::embed_tokens(const ForwardBatch& batch, Matrix hidden) {
  const PackedWeight& table = weights_.embedding_table();
  if (ranks_ == nullptr) {
    return embedding(context_, table, batch.token_ids, config_.embedding_scale, hidden);
  }
  const InputRange own = config_.vocabulary();
  const auto is_own = [&](int32_t id) { return id >= own.begin && id < own.end; };
  own_ids_.clear();
  for (const int32_t id : batch.token_ids) {
    own_ids_.push_back(is_own(id) ? static_cast<int32_t>(id - own.begin) : 0);
  }
  if (own.size() > 0) embedding(context_, table, own_ids_, config_.embedding_scale, hidden);
  for (int64_t m = 0; m < hidden.num_rows; ++m) {
    if (is_own(batch.token_ids[static_cast<size_t>(m)])) continue;
    std::fill_n(hidden.row<float>(m), hidden.num_cols, 0.0f);
  }
  sum_over_ranks(*ranks_, hidden);
}

void Decoder::embed(const ForwardBatch& batch, Matrix hidden) {
  embed_tokens(batch, hidden);
  if (!weights_.positions) return;
  position_rows_.clear();
  for (const int32_t position : positions_) {
    position_rows_.push_back(position + static_cast<int32_t>(config_.position_offset));
  }
  const Matrix learned = workspace_.take(Slot::kBlockOut, hidden.num_rows, hidden.num_cols);
  embedding(context_, *weights_.positions, position_rows_, 1.0f, learned);
  add_rows(context_, learned, hidden);
}

void Decoder::compute_hidden(const DecoderStep& step, Matrix hidden) const {
  const ForwardBatch& batch = step.batch;
  if (batch.hidden_rows.empty()) return;
  copy_rows(batch.hidden_rows, hidden, batch.hidden);
  apply_norm(step, weights_.final_norm, batch.hidden, batch.hidden);
  step.finish("final_norm");
}

void Decoder::compute_logits(const DecoderStep& step, Matrix hidden, Matrix logits) {
  const ForwardBatch& batch = step.batch;
  if (batch.logit_rows.empty()) return;
  const Matrix last = workspace_.take(Slot::kLast, logits.num_rows, config_.hidden_size);
  copy_rows(batch.logit_rows, hidden, last);
  apply_norm(step, weights_.final_norm, last, last);
  step.finish("final_norm");
  if (ranks_ == nullptr) {
    weights_.output.run(context_, last, logits);
  } else {
    const Matrix own = workspace_.take(Slot::kLogits, logits.num_rows, config_.vocabulary().size());
    weights_.output.run(context_, last, own);
    gather_logits(step, own, logits);
  }
  if (config_.logits_scale != 1) scale_rows(context_, config_.logits_scale, logits);
  if (config_.logits_soft_cap > 0) apply_soft_cap(context_, config_.logits_soft_cap, logits);
  step.finish("output");
}

namespace {

/// The inputs of a block: the residual stream, normed in `normed` where the block has a norm.
ConstMatrix block_inputs(const DecoderStep& step, const std::optional<NormSpec>& spec,
                         const NormWeights& norm, Matrix hidden, Matrix normed) {
  if (!spec) return hidden;
  apply_norm(step, norm, hidden, normed);
  step.finish("norm");
  return normed;
}

}  // namespace

void run_layer(const DecoderStep& step, const LayerSpec& spec, const LayerWeights& weights,
               const KvLayerView& cache, Matrix hidden) {
  const Matrix normed = step.workspace.take(Slot::kNormed, hidden.num_rows, hidden.num_cols);
  const Matrix block_out = step.workspace.take(Slot::kBlockOut, hidden.num_rows, hidden.num_cols);
  const ConstMatrix x = block_inputs(step, spec.input_norm, weights.input_norm, hidden, normed);
  attention_block(step, spec, weights, cache, x, block_out);
  if (spec.attention_out_norm) apply_norm(step, weights.attention_out_norm, block_out, block_out);
  add_rows(step.context, block_out, hidden);
  const ConstMatrix y = block_inputs(step, spec.mlp_norm, weights.mlp_norm, hidden, normed);
  mlp_block(step, spec.mlp, weights.mlp, y, block_out);
  if (spec.mlp_out_norm) apply_norm(step, weights.mlp_out_norm, block_out, block_out);
  add_rows(step.context, block_out, hidden);
  step.finish("residual");
}

std::vector<PrecisionLevel> Decoder::precision_levels(KvDType kv_dtype) const {
  return nested_levels(config_, memory_of(weights_, config_, Precision::kFull),
                       memory_of(weights_, config_, Precision::kLow), kv_dtype);
}

void Decoder::forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) {
  run(batch, cache, logits, nullptr);
}

std::vector<OpTime> Decoder::profile(const ForwardBatch& batch, const KvCacheView& cache,
                                     Matrix logits) {
  OpClock clock;
  run(batch, cache, logits, &clock);
  return clock.take();
}

void Decoder::run(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits,
                  OpClock* clock) {
  check_step(config_, batch, cache);
  const PrecisionScope scope(context_, batch.precision);
  HALLEY_CHECK(logits.num_rows == static_cast<int64_t>(batch.logit_rows.size()), logits.num_rows);
  HALLEY_CHECK(logits.num_cols == config_.vocab_size, logits.num_cols);
  HALLEY_CHECK(batch.hidden_rows.empty() || batch.hidden.num_cols == shape_.hidden_size,
               batch.hidden.num_cols);
  HALLEY_CHECK(batch.hidden.num_rows == static_cast<int64_t>(batch.hidden_rows.size()),
               batch.hidden.num_rows);
  HALLEY_CHECK(batch.adapters.empty() ||
                   (takes_adapters() && batch.adapters.size() == batch.sequences.size()),
               batch.adapters.size(), batch.sequences.size());
  if (batch.token_ids.empty()) return;
  const auto M = static_cast<int64_t>(batch.token_ids.size());
  set_positions(batch);
  const Matrix hidden = workspace_.take(Slot::kHidden, M, config_.hidden_size);
  if (config_.share.is_first()) {
    embed(batch, hidden);
  } else {
    stages_->receive(hidden);
  }
  const DecoderStep step = {context_, config_, batch, angles_, workspace_, nullptr, clock, ranks_};
  step.finish("embedding");
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    if (clock != nullptr) {
      clock->set_prefix(str("layers.", config_.share.first_layer + static_cast<int64_t>(i), "."));
    }
    run_layer(step, config_.layers[i], weights_.layers[i], cache.layers[i], hidden);
  }
  if (clock != nullptr) clock->set_prefix("");
  if (!config_.share.is_last()) {
    stages_->send(hidden);
    return step.finish("send");
  }
  compute_hidden(step, hidden);
  compute_logits(step, hidden, logits);
}

}  // namespace halley
