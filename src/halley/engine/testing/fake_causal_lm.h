// For tests: a model without weights. It keeps each token's id in the KV cache, reads all of a
// sequence's ids back from there, and gives logits that are a function of them. A page that was
// lost or wrongly shared changes the text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/philox.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/low_rank.h"

namespace halley {

/// Fills `logits` [V] given all tokens of a sequence so far.
using FakeLogits = std::function<void(std::span<const int32_t> tokens, std::span<float> logits)>;

/// Logits uniform in [-4, 4), different for every sequence of tokens.
inline void hashed_logits(std::span<const int32_t> tokens, std::span<float> logits) {
  uint64_t hash = tokens.size();
  for (const int32_t token : tokens) hash = random_bits(hash, static_cast<uint64_t>(token));
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(8 * random_uniform(hash, i) - 4);
  }
}

/// Levels of a model that reads half of its weights in low precision.
inline std::vector<PrecisionLevel> fake_levels() {
  const auto cost = [](double bytes) {
    return DecoderCost{.row_linear_operations = 1e9, .windows = {0}, .always_bytes = bytes};
  };
  return {
      {.name = "f16", .precision = Precision::kFull, .cost = cost(2e9)},
      {.name = "e4m3", .precision = Precision::kLow, .weight_error = 0.0625, .cost = cost(1e9)}};
}

/// Its KV cache is f32 with two layers. With `levels`, positions that a step in low precision has
/// computed have their ids changed by kLowId in what logits_of sees: a token in full precision
/// after a page that was computed in low precision differs from what it should be.
class FakeCausalLm : public CausalLm {
 public:
  explicit FakeCausalLm(int64_t vocab_size, FakeLogits logits_of = hashed_logits,
                        int64_t max_positions = 512)
      : shape_({.num_layers = 2,
                .num_kv_heads = 1,
                .head_dim = 1,
                .vocab_size = vocab_size,
                .max_positions = max_positions,
                .kv_dtype_default = KvDType::kF32,
                .hidden_size = kHiddenSize}),
        logits_of_(std::move(logits_of)) {}

  static constexpr int32_t kLowId = 1 << 20;
  /// Plus an adapter's id, it stands behind the tokens that FakeLogits gets of a sequence with one.
  static constexpr int32_t kAdapterId = 1 << 21;
  static constexpr int64_t kHiddenSize = 3;

  /// The hidden state of the last of these tokens, as the model gives it.
  static std::vector<float> hidden_of(std::span<const int32_t> tokens) {
    std::vector<float> hidden(kHiddenSize);
    hashed_logits(tokens, hidden);
    return hidden;
  }

  const ModelShape& shape() const override { return shape_; }
  std::vector<PrecisionLevel> precision_levels(KvDType) const override { return levels; }
  bool takes_adapters() const override { return has_adapters; }

  void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) override {
    if (on_forward) on_forward(batch);
    check_batch(batch, cache, logits);
    size_t next_logit_row = 0, next_hidden_row = 0;
    for (size_t index = 0; index < batch.sequences.size(); ++index) {
      const BatchSequence& sequence = batch.sequences[index];
      const Adapter* adapter = batch.adapters.empty() ? nullptr : batch.adapters[index];
      write(batch, cache, sequence);
      for (int64_t i = 0; i < sequence.num_new_tokens; ++i) {
        if (next_hidden_row < batch.hidden_rows.size() &&
            batch.hidden_rows[next_hidden_row] == sequence.first_row + i) {
          const std::vector<float> hidden =
              hidden_of(read(cache, sequence, sequence.num_past_tokens + i + 1));
          std::copy(hidden.begin(), hidden.end(),
                    batch.hidden.row<float>(static_cast<int64_t>(next_hidden_row++)));
        }
        if (next_logit_row == batch.logit_rows.size() ||
            batch.logit_rows[next_logit_row] != sequence.first_row + i) {
          continue;
        }
        const int64_t num_tokens = sequence.num_past_tokens + i + 1;
        std::vector<int32_t> tokens = read(cache, sequence, num_tokens);
        for (int64_t position = 0; position < num_tokens; ++position) {
          if (is_low(cache, sequence, position)) tokens[static_cast<size_t>(position)] += kLowId;
        }
        if (adapter != nullptr) tokens.push_back(kAdapterId + static_cast<int32_t>(adapter->id));
        logits_of_(tokens, {logits.row<float>(static_cast<int64_t>(next_logit_row)),
                            static_cast<size_t>(shape_.vocab_size)});
        ++next_logit_row;
      }
    }
    HALLEY_CHECK(next_logit_row == batch.logit_rows.size(), next_logit_row);
    HALLEY_CHECK(next_hidden_row == batch.hidden_rows.size(), next_hidden_row);
  }

  /// The first tokens of a sequence, as the cache has them.
  static std::vector<int32_t> read(const KvCacheView& cache, const BatchSequence& sequence,
                                   int64_t num_tokens) {
    std::vector<int32_t> tokens;
    for (int64_t position = 0; position < num_tokens; ++position) {
      const float id = slot(cache.layers[0], sequence, position);
      HALLEY_CHECK(id == slot(cache.layers[1], sequence, position), position);
      tokens.push_back(static_cast<int32_t>(id));  // without kLowMark
    }
    return tokens;
  }

  void give_no_hidden_states() { shape_.hidden_size = 0; }

  std::function<void(const ForwardBatch&)> on_forward;  // may throw
  std::vector<PrecisionLevel> levels = {};
  bool has_adapters = true;

 private:
  void check_batch(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) const {
    HALLEY_CHECK(static_cast<int64_t>(cache.layers.size()) == shape_.num_layers);
    HALLEY_CHECK(logits.num_rows == static_cast<int64_t>(batch.logit_rows.size()));
    HALLEY_CHECK(logits.num_cols == shape_.vocab_size);
    int64_t row = 0;
    std::map<int32_t, size_t> num_users;
    for (const BatchSequence& sequence : batch.sequences) {
      HALLEY_CHECK(sequence.first_row == row && sequence.num_new_tokens >= 1, row);
      row += sequence.num_new_tokens;
      for (const int32_t page : sequence.page_table) {
        HALLEY_CHECK(page >= 0 && page < cache.layers[0].num_pages, page);
        ++num_users[page];
      }
    }
    // A sequence must own the pages that it writes; pages that are only read may be shared.
    const int64_t page_tokens = cache.layers[0].layout.page_tokens;
    for (const BatchSequence& sequence : batch.sequences) {
      const auto first = static_cast<size_t>(sequence.num_past_tokens / page_tokens);
      for (size_t i = first; i < sequence.page_table.size(); ++i) {
        HALLEY_CHECK(num_users[sequence.page_table[i]] == 1, sequence.page_table[i]);
      }
    }
    HALLEY_CHECK(row == static_cast<int64_t>(batch.token_ids.size()), row);
  }

  static constexpr float kLowMark = 0.5f;

  static bool is_low(const KvCacheView& cache, const BatchSequence& sequence, int64_t position) {
    const float id = slot(cache.layers[0], sequence, position);
    return id != static_cast<float>(static_cast<int32_t>(id));
  }

  static float& slot(const KvLayerView& layer, const BatchSequence& sequence, int64_t position) {
    const int64_t page_tokens = layer.layout.page_tokens;
    const auto page_index = static_cast<size_t>(position / page_tokens);
    HALLEY_CHECK(page_index < sequence.page_table.size(), position);
    const auto page = static_cast<size_t>(sequence.page_table[page_index]);
    std::byte* keys = layer.pages + page * layer.layout.page_bytes();
    return reinterpret_cast<float*>(keys)[position % page_tokens];
  }

  static void write(const ForwardBatch& batch, const KvCacheView& cache,
                    const BatchSequence& sequence) {
    for (const KvLayerView& layer : cache.layers) {
      for (int64_t i = 0; i < sequence.num_new_tokens; ++i) {
        slot(layer, sequence, sequence.num_past_tokens + i) =
            static_cast<float>(batch.token_ids[static_cast<size_t>(sequence.first_row + i)]) +
            (batch.precision == Precision::kLow ? kLowMark : 0);
      }
    }
  }

  ModelShape shape_;
  FakeLogits logits_of_;
};

}  // namespace halley
