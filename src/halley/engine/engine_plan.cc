#include "halley/engine/engine_plan.h"

#include <algorithm>
#include <limits>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/kv_cache.h"

namespace halley {
namespace {

// Far above what is of use; they keep the products below small.
constexpr int64_t kPageTokensMax = 4096;
constexpr int64_t kSeqsMax = 65'536;
constexpr int64_t kBatchedTokensMax = int64_t{1} << 20;
constexpr int64_t kQueuedMax = int64_t{1} << 24;
constexpr int64_t kQueuedTokensMax = int64_t{1} << 50;
// The logits of a prompt's rows are looked at one by one; more of them at once save nothing.
constexpr int64_t kPromptLogitBytesMax = int64_t{64} << 20;
constexpr int64_t kPagesMax = std::numeric_limits<int32_t>::max();

void check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  throw InputError(str(name, ": expected ", min, " to ", max, ", got ", value));
}

void check_config(const EngineConfig& config, const ModelShape& model) {
  check_range("page_tokens", config.page_tokens, 1, kPageTokensMax);
  check_range("max_num_seqs", config.max_num_seqs, 1, kSeqsMax);
  check_range("max_num_batched_tokens", config.max_num_batched_tokens, 1, kBatchedTokensMax);
  check_range("max_num_queued", config.max_num_queued, 1, kQueuedMax);
  check_range("max_num_queued_tokens", config.max_num_queued_tokens, 0, kQueuedTokensMax);
  check_range("kv_bytes", config.kv_bytes, 0, std::numeric_limits<int64_t>::max());
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    throw InputError(str("max_num_batched_tokens: expected at least max_num_seqs (",
                         config.max_num_seqs, "), since each running sequence needs one row, got ",
                         config.max_num_batched_tokens, ". Raise it or lower max_num_seqs."));
  }
  if (config.max_model_len == 0) return;
  if (config.max_model_len < 2 || config.max_model_len > model.max_positions) {
    throw InputError(str("max_model_len: expected 2 to the model's maximum of ",
                         model.max_positions, ", got ", config.max_model_len));
  }
}

[[noreturn]] void throw_no_room(const EngineConfig& config, int64_t page_bytes,
                                int64_t sequence_bytes) {
  const int64_t num_tokens = config.kv_bytes / page_bytes * config.page_tokens;
  const std::string shorter =
      num_tokens < 2 ? std::string() : str(" or max_model_len to at most ", num_tokens);
  throw InputError(str(
      "kv cache: expected room for at least one sequence of max_model_len=", config.max_model_len,
      " tokens, which needs ", sequence_bytes, " bytes, got kv_bytes=", config.kv_bytes,
      ". Set kv_bytes to at least ", sequence_bytes, shorter, "."));
}

}  // namespace

EnginePlan plan_engine(const EngineConfig& config, const ModelShape& model, int64_t memory_bytes) {
  check_config(config, model);
  EnginePlan plan;
  plan.config = config;
  EngineConfig& full = plan.config;
  full.kv_dtype = config.kv_dtype.value_or(model.kv_dtype_default);
  if (full.max_model_len == 0) full.max_model_len = model.max_positions;
  if (full.max_num_queued_tokens == 0) {
    full.max_num_queued_tokens =
        checked_mul(full.max_num_queued, full.max_model_len).value_or(kQueuedTokensMax);
  }
  const auto logit_row_bytes = model.vocab_size * static_cast<int64_t>(sizeof(float));
  plan.max_num_prompt_logits =
      std::clamp(kPromptLogitBytesMax / logit_row_bytes, int64_t{1}, full.max_num_batched_tokens);
  plan.layout = kv_page_layout(model, *full.kv_dtype, full.page_tokens);

  const int64_t page_bytes = kv_page_bytes(model, plan.layout);
  const int64_t num_sequence_pages = ceil_div(full.max_model_len, full.page_tokens);
  const int64_t num_useful_pages =
      std::min(checked_mul(num_sequence_pages, full.max_num_seqs).value_or(kPagesMax), kPagesMax);
  const int64_t bytes_max = std::numeric_limits<int64_t>::max();
  const int64_t sequence_bytes = checked_mul(num_sequence_pages, page_bytes).value_or(bytes_max);
  if (full.kv_bytes == 0) {
    full.kv_bytes =
        std::min(checked_mul(num_useful_pages, page_bytes).value_or(bytes_max), memory_bytes / 4);
  }
  plan.num_pages = std::min(full.kv_bytes / page_bytes, num_useful_pages);
  if (plan.num_pages < num_sequence_pages) throw_no_room(full, page_bytes, sequence_bytes);
  return plan;
}

SchedulerConfig scheduler_config(const EnginePlan& plan) {
  return {.num_pages = plan.num_pages,
          .page_tokens = plan.config.page_tokens,
          .max_model_len = plan.config.max_model_len,
          .max_num_seqs = plan.config.max_num_seqs,
          .max_num_batched_tokens = plan.config.max_num_batched_tokens,
          .max_num_prompt_logits = plan.max_num_prompt_logits,
          .policy = plan.config.scheduling_policy,
          .has_prefix_caching = plan.config.has_prefix_caching};
}

}  // namespace halley
