#include "halley/server/openai/sequence_output.h"

namespace halley {

SequenceOutput::SequenceOutput(const ApiRequest& request, const ReasoningStart& start)
    : prompt_logprobs(static_cast<size_t>(request.num_prompt_alternatives().value_or(0))),
      logprobs(static_cast<size_t>(request.num_alternatives())),
      returns_token_ids(request.returns_token_ids),
      is_echo_only(request.max_tokens == 0),
      reasoning(start) {}

void SequenceOutput::add(const TokenEvent& event) {
  for (const PromptLogprob& entry : event.prompt_logprobs) {
    prompt_logprobs.add(entry.token_id, entry.logprob, entry.top);
  }
  if (!is_echo_only) {
    text += event.text;
    reasoning.push(event.text, event.token_id.has_value());
    num_tokens += event.token_id ? 1 : 0;
    if (event.token_id && returns_token_ids) token_ids.push_back(*event.token_id);
    num_low_tokens += event.token_id && event.is_low ? 1 : 0;
    if (event.token_id && event.logprob) {
      logprobs.add(*event.token_id, event.logprob->logprob, event.top_logprobs);
    }
  }
  if (!event.finish_reason) return;
  finish_reason = event.finish_reason;
  stop_reason = event.stop_reason;
  if (event.times) num_cached_tokens = event.times->num_cached_tokens;
}

}  // namespace halley
