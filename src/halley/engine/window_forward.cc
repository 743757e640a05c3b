#include "halley/engine/window_forward.h"

#include <algorithm>
#include <numeric>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/base/step_runner.h"

namespace halley {
namespace {

constexpr int64_t kPageTokens = 16;
constexpr int64_t kChunkRowsMax = 65'536;

std::vector<int32_t> first_integers(int64_t count) {
  std::vector<int32_t> integers(static_cast<size_t>(count));
  std::iota(integers.begin(), integers.end(), 0);
  return integers;
}

}  // namespace

std::vector<WindowChunk> cut_windows(int64_t num_ids, int64_t window, int64_t chunk_rows) {
  std::vector<WindowChunk> chunks;
  for (int64_t begin = 0; begin + 1 < num_ids; begin += window) {
    const int64_t last = std::min(begin + window, num_ids) - 1;
    for (int64_t row = begin; row < last; row += chunk_rows) {
      chunks.push_back({begin, row, std::min(chunk_rows, last - row)});
    }
  }
  return chunks;
}

void check_windows(const ModelShape& model, std::span<const int32_t> ids, int64_t window,
                   int64_t chunk_rows) {
  if (window < 2 || window > model.max_positions) {
    throw InputError(str("window: expected 2 to the model's maximum of ", model.max_positions,
                         " tokens, got ", window));
  }
  if (chunk_rows < 1 || chunk_rows > kChunkRowsMax) {
    throw InputError(str("chunk_rows: expected 1 to ", kChunkRowsMax, ", got ", chunk_rows));
  }
  if (ids.size() < 2) {
    throw InputError(str("text: expected at least 2 tokens, got ", ids.size()));
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= model.vocab_size) {
      throw InputError(str("text: expected token ids of 0 to ", model.vocab_size - 1, ", got ", id,
                           ". Check that the tokenizer belongs to the model."));
    }
  }
}

WindowForward::WindowForward(CausalLm& model, std::span<const int32_t> ids, int64_t window,
                             int64_t chunk_rows, std::optional<KvDType> kv_dtype)
    : model_(model),
      ids_(ids),
      cache_(prepare_cache(model,
                           {.num_sequences = 1,
                            .num_rows = std::min(chunk_rows, window - 1),
                            .num_logit_rows = std::min(chunk_rows, window - 1),
                            .max_length = window,
                            .kv_dtype = kv_dtype.value_or(model.shape().kv_dtype_default),
                            .page_tokens = kPageTokens},
                           ceil_div(window, kPageTokens))),
      page_table_(first_integers(ceil_div(window, kPageTokens))),
      logit_rows_(first_integers(std::min(chunk_rows, window - 1))) {
  if (model.step_runner() != nullptr) return;
  logits_.resize(logit_rows_.size() * static_cast<size_t>(model.shape().vocab_size));
}

std::span<const float> WindowForward::run(const WindowChunk& chunk) {
  const auto num_rows = static_cast<size_t>(chunk.num_rows);
  const BatchSequence sequence = {.first_row = 0,
                                  .num_new_tokens = chunk.num_rows,
                                  .num_past_tokens = chunk.first_row - chunk.window_begin,
                                  .page_table = page_table_};
  const ForwardBatch batch = {
      .token_ids = ids_.subspan(static_cast<size_t>(chunk.first_row), num_rows),
      .sequences = {&sequence, 1},
      .logit_rows = std::span<const int32_t>(logit_rows_).first(num_rows)};
  const size_t num_logits = num_rows * static_cast<size_t>(vocab_size());
  if (StepRunner* runner = model_.step_runner(); runner != nullptr) {
    // Its logits arrive in page-locked memory, several times faster than in pageable memory.
    runner->launch({.batch = batch, .choices = {}}, cache_.view());
    return {runner->wait().logits.row<float>(0), num_logits};
  }
  model_.forward(batch, cache_.view(), f32_matrix(logits_.data(), chunk.num_rows, vocab_size()));
  return std::span<const float>(logits_).first(num_logits);
}

}  // namespace halley
