#include "halley/engine/perplexity.h"

#include <algorithm>
#include <cmath>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/kv_cache.h"
#include "halley/engine/sampler.h"

namespace halley {
namespace {

constexpr int64_t kPageTokens = 16;
constexpr int64_t kChunkRowsMax = 65'536;

void check_input(const ModelShape& model, std::span<const int32_t> ids, int64_t window,
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

// The state of one evaluation: a cache for one window, which each window writes anew.
class Evaluation {
 public:
  Evaluation(CausalLm& model, std::span<const int32_t> ids, int64_t window,
             const PerplexityOptions& options)
      : model_(model),
        ids_(ids),
        window_(window),
        options_(options),
        cache_(
            kv_page_layout(model.shape(), options.kv_dtype.value_or(model.shape().kv_dtype_default),
                           kPageTokens),
            model.shape(), ceil_div(window, kPageTokens)),
        logits_(static_cast<size_t>(std::min(options.chunk_rows, window - 1) *
                                    model.shape().vocab_size)) {
    for (int64_t page = 0; page < ceil_div(window, kPageTokens); ++page) {
      page_table_.push_back(static_cast<int32_t>(page));
    }
    const auto num_ids = static_cast<int64_t>(ids.size());
    num_total_ = num_ids - ceil_div(num_ids, window);
  }

  PerplexityResult run() {
    const auto num_ids = static_cast<int64_t>(ids_.size());
    for (int64_t begin = 0; begin + 1 < num_ids; begin += window_) {
      result_.window_nll.push_back(score_window(begin, std::min(begin + window_, num_ids)));
      result_.nll += result_.window_nll.back();
    }
    result_.perplexity = std::exp(result_.nll / static_cast<double>(result_.num_tokens));
    return result_;
  }

 private:
  double score_window(int64_t begin, int64_t end) {
    double nll = 0;
    // The window's last token predicts nothing that is scored, so that it is not computed.
    for (int64_t row = begin; row < end - 1; row += options_.chunk_rows) {
      const int64_t num_rows = std::min(options_.chunk_rows, end - 1 - row);
      forward(begin, row, num_rows);
      for (int64_t i = 0; i < num_rows; ++i) nll += score_token(row + i + 1, i);
      if (options_.on_progress) options_.on_progress(result_.num_tokens, num_total_);
    }
    return nll;
  }

  void forward(int64_t begin, int64_t row, int64_t num_rows) {
    const BatchSequence sequence = {.first_row = 0,
                                    .num_new_tokens = num_rows,
                                    .num_past_tokens = row - begin,
                                    .page_table = page_table_};
    logit_rows_.resize(static_cast<size_t>(num_rows));
    for (size_t i = 0; i < logit_rows_.size(); ++i) logit_rows_[i] = static_cast<int32_t>(i);
    const ForwardBatch batch = {
        .token_ids = ids_.subspan(static_cast<size_t>(row), static_cast<size_t>(num_rows)),
        .sequences = {&sequence, 1},
        .logit_rows = logit_rows_};
    model_.forward(batch, cache_.view(),
                   f32_matrix(logits_.data(), num_rows, model_.shape().vocab_size));
  }

  double score_token(int64_t token_index, int64_t logit_row) {
    const auto vocab_size = static_cast<size_t>(model_.shape().vocab_size);
    const std::span<const float> logits(
        logits_.data() + static_cast<size_t>(logit_row) * vocab_size, vocab_size);
    const int32_t id = ids_[static_cast<size_t>(token_index)];
    const double nll = log_sum_exp(logits) - double{logits[static_cast<size_t>(id)]};
    if (!std::isfinite(nll)) {
      throw CheckpointError(str("logits: expected a finite likelihood of token ", token_index,
                                " of the text, got ", nll,
                                ". The weights may be damaged, or the model overflows its number "
                                "format."));
    }
    if (options_.on_logits) options_.on_logits(token_index, logits);
    ++result_.num_tokens;
    return nll;
  }

  CausalLm& model_;
  std::span<const int32_t> ids_;
  int64_t window_;
  const PerplexityOptions& options_;
  KvCache cache_;
  std::vector<int32_t> page_table_;
  std::vector<int32_t> logit_rows_;
  std::vector<float> logits_;
  int64_t num_total_ = 0;
  PerplexityResult result_;
};

}  // namespace

PerplexityResult compute_perplexity(CausalLm& model, std::span<const int32_t> ids, int64_t window,
                                    const PerplexityOptions& options) {
  check_input(model.shape(), ids, window, options.chunk_rows);
  return Evaluation(model, ids, window, options).run();
}

}  // namespace halley
