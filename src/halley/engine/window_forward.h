// Splits a text into windows that do not overlap, and runs a model over them chunk by chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/engine/kv_cache.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// Consecutive tokens of one window; the next token of each is scored.
struct WindowChunk {
  int64_t window_begin = 0;  // index of the window's first token in the text
  int64_t first_row = 0;     // index of the chunk's first token in the text
  int64_t num_rows = 0;      // each row predicts the token after it
};

/// The chunks of all windows in order. A window's last token predicts nothing that is scored, so
/// it is in no chunk; a last window of one token has none.
std::vector<WindowChunk> cut_windows(int64_t num_ids, int64_t window, int64_t chunk_rows);

/// Throws InputError if the window, the ids or the chunk are out of the model's range or there
/// is nothing to score.
void check_windows(const ModelShape& model, std::span<const int32_t> ids, int64_t window,
                   int64_t chunk_rows);

/// A model with a KV cache for one window, which each window overwrites. Holds the model and the
/// ids by reference. Not thread-safe.
class WindowForward {
 public:
  /// `kv_dtype` absent: the model's own. The arguments have passed check_windows().
  WindowForward(CausalLm& model, std::span<const int32_t> ids, int64_t window, int64_t chunk_rows,
                std::optional<KvDType> kv_dtype);

  /// Logits [chunk.num_rows, V], valid until the next call. Chunks of a window come in order.
  std::span<const float> run(const WindowChunk& chunk);

  int64_t vocab_size() const { return model_.shape().vocab_size; }

 private:
  CausalLm& model_;
  std::span<const int32_t> ids_;
  KvCache cache_;
  std::vector<int32_t> page_table_;
  std::vector<int32_t> logit_rows_;
  std::vector<float> logits_;  // for a model without a runner
};

}  // namespace halley
