// The blocks of a decoder layer, on one step's rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/kernels/rope/rope.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/base/layer_observer.h"
#include "halley/models/base/op_clock.h"
#include "halley/models/base/workspace.h"
#include "halley/parallel/base/communicator.h"

namespace halley {

/// The state that all layers of one step share.
struct DecoderStep {
  ExecContext& context;
  const DecoderConfig& config;
  const ForwardBatch& batch;
  const std::vector<RopeAngles>& angles;  // as DecoderConfig::ropes
  Workspace& workspace;
  LayerObserver* observer = nullptr;
  OpClock* clock = nullptr;
  Communicator* ranks = nullptr;  // null: there are no others

  int64_t num_rows() const { return static_cast<int64_t>(batch.token_ids.size()); }
  /// Names the operation that ran since the last call.
  void finish(const char* op) const {
    if (clock != nullptr) clock->finish(op);
  }
};

/// The angles of each rotary embedding of the model at the rows' positions.
void compute_angles(ExecContext& context, const DecoderConfig& config,
                    std::span<const int32_t> positions, std::vector<RopeAngles>& angles);

/// y = op(x) and what the sequences' adapters add, seen by the observer.
void run_linear(const DecoderStep& step, const LinearSpec& spec, const LinearOp& op, ConstMatrix x,
                Matrix y);

/// y = norm(x) of the model's kind. Shapes x, y [M, K] f32 (y may be x).
void apply_norm(const DecoderStep& step, const NormWeights& norm, ConstMatrix x, Matrix y);

/// out = o(attention(rope(qkv(x)))), of all ranks; the new keys and values go to `cache`.
/// Shapes    x, out [M, hidden_size] f32
void attention_block(const DecoderStep& step, const LayerSpec& spec, const LayerWeights& weights,
                     const KvLayerView& cache, ConstMatrix x, Matrix out);

/// One decoder layer: hidden [M, hidden_size] f32 in, the same with both blocks' outputs added out.
void run_layer(const DecoderStep& step, const LayerSpec& spec, const LayerWeights& weights,
               const KvLayerView& cache, Matrix hidden);

/// out = down(activation(gate_up(x))), or the weighted sum of the experts that the router picks for
/// each row; of all ranks. Shapes x, out [M, hidden_size] f32.
void mlp_block(const DecoderStep& step, const MlpSpec& spec, const MlpWeights& weights,
               ConstMatrix x, Matrix out);

}  // namespace halley
