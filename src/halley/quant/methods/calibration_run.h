// Runs calibration tokens through a model, one layer at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/core/host_buffer.h"
#include "halley/core/matrix.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/kernels/rope/rope.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/base/layer_observer.h"
#include "halley/models/base/workspace.h"

namespace halley {

/// Text cut into sequences of one length.
struct CalibrationTokens {
  std::vector<int32_t> ids;  // sequence after sequence
  int64_t sequence_length = 0;

  int64_t num_sequences() const {
    return sequence_length == 0 ? 0 : static_cast<int64_t>(ids.size()) / sequence_length;
  }
};

/// Sequences of `length` tokens at even distances over the text, at most `num_sequences`. Throws
/// InputError where the text has fewer than one.
CalibrationTokens cut_calibration_tokens(std::span<const int32_t> text, int64_t num_sequences,
                                         int64_t length);

/// Runs a layer, or a block of it, with these weights on calibration tokens for an observer.
using ObservedRun = std::function<void(const TensorSource& weights, LayerObserver& observer)>;

/// Holds the hidden state [num_tokens, hidden_size] f32 of all tokens in front of one layer.
class CalibrationRun {
 public:
  /// Reads the embedding of the tokens. `context` and `config` must outlive the run. Throws
  /// InputError where a token is not in the vocabulary or sequences are longer than the model's.
  CalibrationRun(ExecContext& context, const DecoderConfig& config, CalibrationTokens tokens,
                 const TensorSource& source);

  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.ids.size()); }
  int64_t sequence_length() const { return tokens_.sequence_length; }

  /// Runs layer `layer_index` with these weights over all tokens. `observer` may be null. With
  /// `is_kept` the layer's output becomes the hidden state; otherwise the state stays as it was.
  /// The keys and values go through a cache of `kv_dtype`. `on_rows(n)`, where it is there, is
  /// called after every n tokens. With `is_attention_only` the pass ends with the attention block,
  /// and the weights need no MLP. Neither that nor `num_sequences_max` may be set with `is_kept`.
  struct Pass {
    LayerObserver* observer = nullptr;
    bool is_kept = false;
    KvDType kv_dtype = KvDType::kF32;
    std::function<void(int64_t num_rows)> on_rows = {};
    bool is_attention_only = false;
    int64_t num_sequences_max = 0;  // the first ones; 0: all
  };
  void run_layer(int64_t layer_index, const LayerWeights& weights, const Pass& pass);

 private:
  ExecContext& context_;
  const DecoderConfig& config_;
  CalibrationTokens tokens_;
  HostBuffer hidden_;
  Workspace workspace_;
};

}  // namespace halley
