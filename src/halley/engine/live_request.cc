#include "halley/engine/live_request.h"

#include <string>
#include <utility>

#include "halley/base/str.h"
#include "halley/models/base/low_rank.h"

namespace halley {
namespace {

/// Keys and values of one adapter are not those of another.
std::string salt_of(const GenerateRequest& generate) {
  const uint64_t adapter = generate.adapter == nullptr ? 0 : generate.adapter->id;
  return str(adapter, ' ', generate.cache_salt);
}

NewSequence sequence_of(const GenerateRequest& generate, SequenceId id,
                        const PrecisionDemand& demand) {
  return {.id = id,
          .num_prompt_tokens = static_cast<int64_t>(generate.prompt_ids.size()),
          // To the scheduler a request that generates nothing ends with its first token.
          .max_tokens = generate.pooling ? 1 : generate.sampling.max_tokens,
          .priority = generate.priority,
          .cache_salt = salt_of(generate),
          .needs_prompt_logits = generate.sampling.num_prompt_logprobs >= 0,
          .needs_all_rows = generate.pooling && generate.pooling->needs_all_rows(),
          .is_choice_deferred = generate.constraint != nullptr,
          .is_pinned = demand.mode == PrecisionMode::kFull};
}

std::optional<Pooler> pooler_of(const GenerateRequest& generate) {
  if (!generate.pooling) return std::nullopt;
  return Pooler(*generate.pooling, static_cast<int64_t>(generate.prompt_ids.size()));
}

std::shared_ptr<MaskJob> mask_job_of(const GenerateRequest& generate) {
  return generate.constraint == nullptr ? nullptr : std::make_shared<MaskJob>(generate.constraint);
}

}  // namespace

LiveRequest::LiveRequest(GenerateRequest generate, const Ids& ids, TokenCallback on_token,
                         const RequestContext& context, const PrecisionDemand& asked)
    : id(ids.request),
      deadline(generate.deadline),
      sequence(sequence_of(generate, ids.sequence, asked)),
      constraint(mask_job_of(generate)),
      adapter(generate.adapter),
      demand(asked),
      scorer(generate.sampling.num_prompt_logprobs, generate.prompt_ids),
      pooler(pooler_of(generate)),
      timer(asked.submitted, sequence.num_prompt_tokens),
      request(std::move(generate), std::move(on_token), context) {}

}  // namespace halley
