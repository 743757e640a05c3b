#include "halley/engine/engine_plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <thread>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/engine/available_memory.h"
#include "halley/engine/kv_cache.h"

namespace halley {
namespace {

// Far above useful values; they keep the multiplications below from overflowing.
constexpr int64_t kPageTokensMax = 4096;
constexpr int64_t kSeqsMax = 65'536;
constexpr int64_t kBatchedTokensMax = int64_t{1} << 20;
constexpr int64_t kQueuedMax = int64_t{1} << 24;
constexpr int64_t kQueuedTokensMax = int64_t{1} << 50;
// The logits of prompt rows are processed one by one; more rows at once save nothing.
constexpr int64_t kPromptLogitBytesMax = int64_t{64} << 20;
constexpr int64_t kMaskThreadsMax = 256;
constexpr int64_t kMaskThreadsDefaultMax = 8;
constexpr int64_t kPagesMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kBytesMax = std::numeric_limits<int64_t>::max();
// A device computes hundreds of rows while it reads the weights once.
constexpr int64_t kHostSeqs = 64, kDeviceSeqs = 256;
// The share of the SLO's TPOT that a step is planned for; the rest is for those that take longer.
constexpr double kStepShareOfTpot = 0.75;
constexpr int64_t kHostBatchedTokens = 512, kDeviceBatchedTokens = 8192;

void check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  throw InputError(str(name, ": expected ", min, " to ", max, ", got ", value));
}

void check_config(const EngineConfig& config, const ModelShape& model) {
  check_range("page_tokens", config.page_tokens, 1, kPageTokensMax);
  check_range("max_num_seqs", config.max_num_seqs, 0, kSeqsMax);
  check_range("max_num_batched_tokens", config.max_num_batched_tokens, 0, kBatchedTokensMax);
  check_range("max_num_queued", config.max_num_queued, 1, kQueuedMax);
  check_range("max_num_queued_tokens", config.max_num_queued_tokens, 0, kQueuedTokensMax);
  check_range("kv_bytes", config.kv_bytes, 0, kBytesMax);
  check_range("num_mask_threads", config.num_mask_threads, 0, kMaskThreadsMax);
  if (config.max_num_batched_tokens != 0 && config.max_num_batched_tokens < config.max_num_seqs) {
    throw InputError(str("max_num_batched_tokens: expected at least max_num_seqs (",
                         config.max_num_seqs, "), since each running sequence needs one row, got ",
                         config.max_num_batched_tokens, ". Raise it or lower max_num_seqs."));
  }
  const ItlTarget& target = config.itl_target;
  if (target.kind == ItlTarget::Kind::kSeconds &&
      !(target.seconds > 0 && target.seconds <= ItlTarget::kSecondsMax)) {
    throw InputError(str("itl_target: expected more than 0 and at most ", ItlTarget::kSecondsMax,
                         " seconds, got ", target.seconds));
  }
  if (config.max_model_len == 0) return;
  if (config.max_model_len < 2 || config.max_model_len > model.max_positions) {
    throw InputError(str("max_model_len: expected 2 to the model's maximum of ",
                         model.max_positions, ", got ", config.max_model_len));
  }
}

int64_t num_prompt_logits(const EngineConfig& config, const ModelShape& model) {
  const auto row_bytes = model.vocab_size * static_cast<int64_t>(sizeof(float));
  return std::clamp(kPromptLogitBytesMax / row_bytes, int64_t{1}, config.max_num_batched_tokens);
}

[[noreturn]] void throw_no_room(const EngineConfig& config, int64_t page_bytes,
                                int64_t sequence_bytes, const KvRoom& limits) {
  const int64_t num_tokens = config.kv_bytes / page_bytes * config.page_tokens;
  const std::string shorter =
      num_tokens < 2 ? std::string() : str("max_model_len to at most ", num_tokens);
  const std::string expected = str(
      "kv cache: expected room for at least one sequence of max_model_len=", config.max_model_len,
      " tokens, which needs ", sequence_bytes, " bytes, got ");
  if (sequence_bytes > limits.bytes_max) {
    throw InputError(str(expected, limits.bytes_max, " bytes that the device has left. Set ",
                         shorter.empty() ? "max_num_batched_tokens lower" : shorter,
                         ", or use a smaller kv_dtype."));
  }
  throw InputError(str(expected, "kv_bytes=", config.kv_bytes, ". Set kv_bytes to at least ",
                       sequence_bytes, shorter.empty() ? "" : " or ", shorter, "."));
}

}  // namespace

EngineConfig with_defaults(const EngineConfig& config, const ModelShape& model, bool is_on_host) {
  check_config(config, model);
  EngineConfig full = config;
  full.kv_dtype = config.kv_dtype.value_or(model.kv_dtype_default);
  if (full.max_model_len == 0) full.max_model_len = model.max_positions;
  if (full.max_num_seqs == 0) {
    full.max_num_seqs = is_on_host ? kHostSeqs : kDeviceSeqs;
    if (full.max_num_batched_tokens != 0) {
      full.max_num_seqs = std::min(full.max_num_seqs, full.max_num_batched_tokens);
    }
  }
  if (full.max_num_batched_tokens == 0) {
    full.max_num_batched_tokens =
        std::max(is_on_host ? kHostBatchedTokens : kDeviceBatchedTokens, full.max_num_seqs);
  }
  if (full.itl_target.kind == ItlTarget::Kind::kAutoOnHost && full.slo.tpot) {
    full.itl_target = {.kind = ItlTarget::Kind::kSeconds,
                       .seconds = kStepShareOfTpot * *full.slo.tpot};
  }
  if (full.itl_target.kind == ItlTarget::Kind::kAutoOnHost) {
    full.itl_target.kind = is_on_host ? ItlTarget::Kind::kAuto : ItlTarget::Kind::kOff;
  }
  if (full.max_num_queued_tokens == 0) {
    full.max_num_queued_tokens =
        checked_mul(full.max_num_queued, full.max_model_len).value_or(kQueuedTokensMax);
  }
  if (full.num_mask_threads == 0) {
    full.num_mask_threads = std::clamp(int64_t{std::thread::hardware_concurrency()} / 4, int64_t{1},
                                       kMaskThreadsDefaultMax);
  }
  return full;
}

StepLimits step_limits(const EngineConfig& config, const ModelShape& model) {
  return {.num_sequences = config.max_num_seqs,
          .num_rows = config.max_num_batched_tokens,
          .num_logit_rows = std::min(config.max_num_seqs + num_prompt_logits(config, model),
                                     config.max_num_batched_tokens),
          .max_length = config.max_model_len,
          .kv_dtype = *config.kv_dtype,
          .page_tokens = config.page_tokens};
}

KvRoom host_kv_room(int64_t memory_bytes) { return {.bytes_default = memory_bytes / 4}; }

KvRoom device_kv_room(int64_t memory_bytes) {
  return {.bytes_default = memory_bytes, .bytes_max = memory_bytes};
}

EnginePlan plan_engine(const EngineConfig& config, const ModelShape& model, const KvRoom& limits) {
  if (config.kv_bytes > limits.bytes_max) {
    throw InputError(str("kv_bytes: expected at most ", limits.bytes_max,
                         ", which the device has left after the weights and the memory of a "
                         "step, got ",
                         config.kv_bytes, ". Lower it, or max_num_batched_tokens."));
  }
  EnginePlan plan;
  plan.config = config;
  plan.max_num_prompt_logits = num_prompt_logits(config, model);
  plan.layout = kv_page_layout(model, *config.kv_dtype, config.page_tokens);

  const int64_t page_bytes = kv_page_bytes(model, plan.layout);
  const int64_t num_sequence_pages = ceil_div(config.max_model_len, config.page_tokens);
  const int64_t num_useful_pages =
      std::min(checked_mul(num_sequence_pages, config.max_num_seqs).value_or(kPagesMax), kPagesMax);
  const int64_t sequence_bytes = checked_mul(num_sequence_pages, page_bytes).value_or(kBytesMax);
  if (config.kv_bytes == 0) {
    plan.config.kv_bytes = std::min(checked_mul(num_useful_pages, page_bytes).value_or(kBytesMax),
                                    limits.bytes_default);
  }
  plan.num_pages = std::min(plan.config.kv_bytes / page_bytes, num_useful_pages);
  if (plan.num_pages < num_sequence_pages) {
    throw_no_room(plan.config, page_bytes, sequence_bytes, limits);
  }
  return plan;
}

EnginePlan prepare_engine(CausalLm& model, const EngineConfig& config) {
  const ModelShape& shape = model.shape();
  const EngineConfig full = with_defaults(config, shape, model.device_name() == "cpu");
  // The model reserves its own memory before the KV cache takes the rest.
  const std::optional<int64_t> device_bytes = model.prepare(step_limits(full, shape));
  EnginePlan plan =
      plan_engine(full, shape,
                  device_bytes ? device_kv_room(*device_bytes)
                               : host_kv_room(available_memory_bytes() / shape.num_caches));
  plan.num_stages = model.num_stages();
  return plan;
}

void check_eos_token_ids(const std::vector<int32_t>& ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      throw InputError(str("eos_token_ids: expected token ids of 0 to ", vocab_size - 1, ", got ",
                           id, ". Check generation_config.json."));
    }
  }
}

SchedulerConfig scheduler_config(const EnginePlan& plan) {
  return {.num_pages = plan.num_pages,
          .page_tokens = plan.config.page_tokens,
          .max_model_len = plan.config.max_model_len,
          .max_num_seqs = plan.config.max_num_seqs,
          .max_num_batched_tokens = plan.config.max_num_batched_tokens,
          .max_num_prompt_logits = plan.max_num_prompt_logits,
          .policy = plan.config.scheduling_policy,
          .has_prefix_caching = plan.config.has_prefix_caching,
          .num_stages = plan.num_stages};
}

}  // namespace halley
