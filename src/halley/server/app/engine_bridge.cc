#include "halley/server/app/engine_bridge.h"

#include <utility>

#include "halley/server/app/output_constraint.h"

namespace halley {
namespace {

constexpr int kRetryAfterS = 1;

}  // namespace

GenerateRequest make_generate_request(const ApiRequest& request, ToolDialect dialect,
                                      SequencePlan plan) {
  GenerateRequest out;
  out.prompt_ids = std::move(plan.prompt_ids);
  out.sampling = request.sampling;
  out.sampling.max_tokens = plan.max_tokens;
  if (out.sampling.seed) *out.sampling.seed += static_cast<uint64_t>(plan.choice_index);
  if (request.num_completion_logprobs) {
    out.sampling.num_logprobs = static_cast<int>(*request.num_completion_logprobs);
  } else if (request.has_chat_logprobs) {
    out.sampling.num_logprobs = static_cast<int>(request.num_top_logprobs);
  }
  // A prompt is scored once, but echoed by each of its choices.
  const bool scores_prompt = request.has_echo || plan.choice_index == 0;
  const auto num_prompt_alternatives = request.num_prompt_alternatives();
  if (num_prompt_alternatives && scores_prompt) {
    out.sampling.num_prompt_logprobs = static_cast<int>(*num_prompt_alternatives);
  }
  // The markers of tool calls and of reasoning are special tokens in some vocabularies; they must
  // stay in the text.
  const bool looks_for_calls =
      request.tool_choice && request.tool_choice->kind != ToolChoice::Kind::kNone;
  const bool has_call_marks = looks_for_calls && dialect != ToolDialect::kNone;
  if (has_call_marks || plan.has_reasoning_marks) out.sampling.skip_special_tokens = false;
  out.priority = static_cast<int32_t>(request.priority);
  out.cache_salt = request.cache_salt;
  out.deadline = plan.deadline;
  out.precision = request.precision;
  out.slo = request.slo;
  out.constraint = std::move(plan.constraint);
  out.adapter = std::move(plan.adapter);
  return out;
}

GenerateRequest make_pooled_request(const ApiRequest& request, Pooling pooling,
                                    std::vector<int32_t> prompt_ids,
                                    std::optional<ServerTime> deadline) {
  GenerateRequest out;
  out.prompt_ids = std::move(prompt_ids);
  out.pooling = std::move(pooling);
  out.priority = static_cast<int32_t>(request.priority);
  out.cache_salt = request.cache_salt;
  out.deadline = deadline;
  return out;
}

int64_t num_queued(const Engine& engine) { return engine.stats().num_queued; }

bool has_room_for_tokens(const Engine& engine) {
  return engine.would_admit(/*num_prompt_tokens=*/0).status != Submit::kQueueFull;
}

bool has_stopped(const Engine& engine) {
  return engine.would_admit(/*num_prompt_tokens=*/0).status == Submit::kStopped;
}

bool has_precisions(const Engine& engine) { return !engine.stats().precision.levels.empty(); }

OrderedJson precision_state(const EngineConfig& config, const PrecisionStats& stats,
                            ServerTime now) {
  const auto milliseconds_of = [](const std::optional<double>& seconds) {
    return seconds ? OrderedJson(1000 * *seconds) : OrderedJson();
  };
  OrderedJson names = OrderedJson::array();
  for (const LevelStats& level : stats.levels) names.push_back(level.name);
  OrderedJson switches = OrderedJson::array();
  for (const PrecisionSwitch& event : stats.last_switches) {
    switches.push_back({{"precision", stats.levels.at(event.level).name},
                        {"reason", name_of(event.reason)},
                        {"seconds_ago", std::chrono::duration<double>(now - event.time).count()}});
  }
  return {{"mode", name_of(config.precision)},
          {"slo",
           {{"ttft_ms", milliseconds_of(config.slo.ttft)},
            {"tpot_ms", milliseconds_of(config.slo.tpot)}}},
          {"precisions", std::move(names)},
          {"precision",
           stats.levels.empty() ? OrderedJson() : OrderedJson(stats.levels.at(stats.level).name)},
          {"reason", name_of(stats.reason)},
          {"num_switches", stats.num_switches},
          {"last_switches", std::move(switches)}};
}

ApiError submit_error(const SubmitResult& result) {
  switch (result.status) {
    case Submit::kQueueFull:
      return overloaded("The queue is full. Try again later.", kRetryAfterS);
    case Submit::kStopped:
      return overloaded("The server takes no more requests: it ends or has failed.", kRetryAfterS);
    case Submit::kTooLong:
      return {result.message, {.code = "context_length_exceeded"}};
    case Submit::kInvalid:
    case Submit::kQueued:
      break;
  }
  return invalid_field("", result.message);
}

bool is_failure(const TokenEvent& event) {
  return event.finish_reason && *event.finish_reason != FinishReason::kStop &&
         *event.finish_reason != FinishReason::kLength;
}

ApiError deadline_error() {
  return {"The request's time has passed. Give it more, or ask for less.",
          {.status = 504, .type = "timeout_error", .code = "timeout"}};
}

ApiError end_error(const ApiRequest& request, const TokenEvent& event) {
  if (event.finish_reason == FinishReason::kCancelled) {
    return overloaded("The server ends; the request was cancelled.", kRetryAfterS);
  }
  if (event.finish_reason == FinishReason::kDeadline) return deadline_error();
  // A constraint that exceeds the limits while the output is generated is the client's error.
  if (event.is_over_constraint_limits) {
    const std::string field = constraint_field(request);
    return invalid_field(field, constraint_limit_error(field));
  }
  return internal_error();
}

std::vector<TokenDetail> prompt_details(const TokenEvent& event) {
  std::vector<TokenDetail> details;
  details.reserve(event.prompt_logprobs.size());
  for (const PromptLogprob& entry : event.prompt_logprobs) {
    TokenDetail detail{.token_id = entry.token_id, .logprob = {}, .top_logprobs = entry.top};
    if (entry.logprob) detail.logprob = TokenLogprob{entry.token_id, *entry.logprob};
    details.push_back(std::move(detail));
  }
  return details;
}

int64_t num_cached_prompt_tokens(const TokenEvent& event) {
  return event.times ? event.times->num_cached_tokens : 0;
}

}  // namespace halley
