#include "halley/server/openai/choice_writer.h"

#include <utility>

#include "halley/base/check.h"
#include "halley/server/openai/api_id.h"
#include "halley/server/openai/logprobs.h"

namespace halley {
namespace {

std::unique_ptr<ToolCallParser> make_parser(const ApiRequest& request, ToolDialect dialect) {
  using Kind = ToolChoice::Kind;
  if (!request.tool_choice || request.tool_choice->kind == Kind::kNone) return nullptr;
  const bool is_auto = request.tool_choice->kind == Kind::kAuto;
  // If calls are forced, the constraint enforces the model's dialect where it can.
  if (dialect != ToolDialect::kNone && (is_auto || is_enforceable(dialect))) {
    return make_tool_call_parser(dialect, request.tools);
  }
  if (is_auto) return nullptr;
  return make_forced_call_parser(*request.tool_choice, request.tools);
}

}  // namespace

ChoiceWriter::ChoiceWriter(const ApiRequest& request, const TokenTexts& texts, ToolDialect dialect,
                           const ReasoningStart& reasoning)
    : request_(request),
      texts_(texts),
      dialect_(dialect),
      reasoning_(make_reasoning_parser(reasoning)),
      parser_(make_parser(request, dialect)),
      has_logprobs_(request.has_logprobs()),
      is_echo_only_(request.max_tokens == 0) {}

ChoiceWriter::~ChoiceWriter() = default;
ChoiceWriter::ChoiceWriter(ChoiceWriter&&) noexcept = default;

ChoiceDelta ChoiceWriter::echo(const std::string& prompt, std::span<const TokenDetail> details) {
  ChoiceDelta delta;
  delta.text = prompt;
  if (has_logprobs_ && !details.empty()) delta.logprobs = logprobs_of(details);
  return delta;
}

ChoiceDelta ChoiceWriter::push(const TokenEvent& event) {
  ChoiceDelta delta;
  // The engine generates at least one token; a client that requested none does not see it.
  if (is_echo_only_) {
    if (event.finish_reason) delta.finish_reason = "length";
    return delta;
  }
  if (event.token_id) ++num_tokens_;
  if (event.token_id && event.is_low) ++num_low_tokens_;
  if (event.token_id && request_.returns_token_ids) delta.token_ids.push_back(*event.token_id);
  add_text(event, delta);
  if (has_logprobs_ && event.token_id && event.logprob) {
    const TokenDetail detail = {*event.token_id, event.logprob, event.top_logprobs};
    delta.logprobs = logprobs_of({&detail, 1});
  }
  if (event.finish_reason) {
    const bool is_stop = *event.finish_reason == FinishReason::kStop;
    delta.finish_reason = is_stop ? (num_calls_ > 0 ? "tool_calls" : "stop") : "length";
    delta.stop_reason = event.stop_reason;
  }
  return delta;
}

void ChoiceWriter::add_text(const TokenEvent& event, ChoiceDelta& delta) {
  std::string text = reasoning_ ? take_reasoning(event, delta) : event.text;
  if (!parser_) {
    delta.text = std::move(text);
    return;
  }
  ToolOutput output;
  parser_->push(text, output);
  if (event.finish_reason) parser_->finish(output);
  delta.text = std::move(output.content);
  add_calls(std::move(output.calls), delta);
}

// Returns the rest of the event's text.
std::string ChoiceWriter::take_reasoning(const TokenEvent& event, ChoiceDelta& delta) {
  ReasoningOutput output;
  const ReasoningPhase before = reasoning_->phase();
  reasoning_->push(event.text, output);
  if (event.token_id && is_reasoning_token(before, reasoning_->phase())) ++num_reasoning_tokens_;
  if (event.finish_reason) reasoning_->finish(output);
  if (request_.includes_reasoning) delta.reasoning = std::move(output.reasoning);
  return std::move(output.content);
}

void ChoiceWriter::add_calls(std::vector<ToolCall> calls, ChoiceDelta& delta) {
  for (ToolCall& call : calls) {
    if (!call.name.empty()) {
      // Mistral's templates require ids of nine characters; Kimi's calls have ids of their own.
      if (call.id.empty()) {
        call.id = dialect_ == ToolDialect::kMistral ? random_id("", 9) : random_id("call_", 24);
      }
      ++num_calls_;
    }
    if (num_calls_ > 1 && !request_.allows_parallel_calls) continue;
    delta.calls.push_back({.index = num_calls_ - 1, .call = std::move(call)});
  }
}

OrderedJson ChoiceWriter::logprobs_of(std::span<const TokenDetail> details) {
  if (request_.has_chat_logprobs) return chat_logprobs(details, texts_);
  return completion_logprobs(details, texts_, text_offset_);
}

}  // namespace halley
