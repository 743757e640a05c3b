#include "halley/engine/perplexity.h"

#include <cmath>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/window_forward.h"
#include "halley/sampling/base/sampler.h"

namespace halley {

int64_t num_scored_tokens(int64_t num_ids, int64_t window) {
  return num_ids - ceil_div(num_ids, window);
}

double token_nll(std::span<const float> logits, int32_t id, int64_t token_index) {
  const double nll = log_sum_exp(logits) - double{logits[static_cast<size_t>(id)]};
  if (!std::isfinite(nll)) {
    throw CheckpointError(str("logits: expected a finite likelihood of token ", token_index,
                              " of the text, got ", nll,
                              ". The weights may be damaged, or the model overflows its number "
                              "format."));
  }
  return nll;
}

PerplexityResult compute_perplexity(CausalLm& model, std::span<const int32_t> ids, int64_t window,
                                    const PerplexityOptions& options) {
  check_windows(model.shape(), ids, window, options.chunk_rows);
  WindowForward forward(model, ids, window, options.chunk_rows, options.kv_dtype);
  const auto num_ids = static_cast<int64_t>(ids.size());
  const auto vocab_size = static_cast<size_t>(forward.vocab_size());
  PerplexityResult result;
  for (const WindowChunk& chunk : cut_windows(num_ids, window, options.chunk_rows)) {
    if (chunk.first_row == chunk.window_begin) result.window_nll.push_back(0);
    const std::span<const float> logits = forward.run(chunk);
    for (int64_t i = 0; i < chunk.num_rows; ++i) {
      const int64_t token_index = chunk.first_row + i + 1;
      const auto row = logits.subspan(static_cast<size_t>(i) * vocab_size, vocab_size);
      result.window_nll.back() +=
          token_nll(row, ids[static_cast<size_t>(token_index)], token_index);
      if (options.on_logits) options.on_logits(token_index, row);
    }
    result.num_tokens += chunk.num_rows;
    if (options.on_progress) {
      options.on_progress(result.num_tokens, num_scored_tokens(num_ids, window));
    }
  }
  for (const double nll : result.window_nll) result.nll += nll;
  result.perplexity = std::exp(result.nll / static_cast<double>(result.num_tokens));
  return result;
}

}  // namespace halley
