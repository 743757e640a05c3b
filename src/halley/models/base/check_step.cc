#include "halley/models/base/check_step.h"

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {

void check_step(const DecoderConfig& config, const ForwardBatch& batch, const KvCacheView& cache,
                int64_t num_slots) {
  HALLEY_CHECK(cache.layers.size() == config.layers.size(), cache.layers.size());
  for (const KvLayerView& layer : cache.layers) {
    HALLEY_CHECK(layer.layout.num_kv_heads == config.num_kv_heads, layer.layout.num_kv_heads);
    HALLEY_CHECK(layer.layout.head_dim == config.head_dim, layer.layout.head_dim);
  }
  for (const int32_t id : batch.token_ids) {
    if (id >= -num_slots && id < config.vocab_size) continue;
    throw InputError(str("token id: expected 0 to ", config.vocab_size - 1, ", got ", id,
                         ". Use the tokenizer that belongs to the model."));
  }
  int64_t next_row = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    HALLEY_CHECK(sequence.first_row == next_row, sequence.first_row, next_row);
    HALLEY_CHECK(sequence.num_new_tokens >= 1, sequence.num_new_tokens);
    next_row += sequence.num_new_tokens;
    const int64_t length = sequence.num_past_tokens + sequence.num_new_tokens;
    if (length <= config.max_positions) continue;
    throw InputError(str("sequence length: expected at most ", config.max_positions, ", got ",
                         length, ". Shorten the prompt or ask for fewer tokens."));
  }
  HALLEY_CHECK(next_row == static_cast<int64_t>(batch.token_ids.size()), next_row);
  for (const int32_t row : batch.logit_rows) HALLEY_CHECK(row >= 0 && row < next_row, row);
}

}  // namespace halley
