// The engine's classes in Python, without logic of their own.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "halley/python/bindings.h"
#include "halley/python/session.h"

namespace halley::python {
namespace {

using Logprobs = std::vector<std::pair<int32_t, float>>;

Logprobs pairs_of(const std::vector<TokenLogprob>& entries) {
  Logprobs pairs;
  for (const TokenLogprob& entry : entries) pairs.emplace_back(entry.token_id, entry.logprob);
  return pairs;
}

/// The chosen token first, then the best ones.
std::vector<Logprobs> logprobs_of(const RequestDelta& delta) {
  std::vector<Logprobs> tokens;
  for (size_t i = 0; i < delta.logprobs.size(); ++i) {
    Logprobs pairs = pairs_of(delta.top_logprobs[i]);
    pairs.insert(pairs.begin(), {delta.logprobs[i].token_id, delta.logprobs[i].logprob});
    tokens.push_back(std::move(pairs));
  }
  return tokens;
}

/// The prompt's own token first; nothing for the first token of the prompt.
std::vector<std::optional<Logprobs>> prompt_logprobs_of(const RequestDelta& delta) {
  std::vector<std::optional<Logprobs>> tokens;
  for (const PromptLogprob& token : delta.prompt_logprobs) {
    auto& pairs = tokens.emplace_back();
    if (!token.logprob) continue;
    pairs = pairs_of(token.top);
    pairs->insert(pairs->begin(), {token.token_id, *token.logprob});
  }
  return tokens;
}

/// vLLM's names.
std::optional<std::string> finish_reason_of(const RequestDelta& delta) {
  if (!delta.finish_reason) return std::nullopt;
  if (*delta.finish_reason == FinishReason::kCancelled) return "abort";
  return name_of(*delta.finish_reason);
}

void bind_options(nb::module_& module) {
  nb::class_<SessionOptions>(module, "SessionOptions")
      .def(nb::init<>())
      .def_rw("model", &SessionOptions::model)
      .def_rw("chat_template", &SessionOptions::chat_template)
      .def_rw("tool_call_parser", &SessionOptions::tool_call_parser)
      .def_rw("device", &SessionOptions::device)
      .def_rw("dtype", &SessionOptions::dtype)
      .def_rw("kv_cache_dtype", &SessionOptions::kv_cache_dtype)
      .def_rw("precision", &SessionOptions::precision)
      .def_rw("quantization", &SessionOptions::quantization)
      .def_rw("max_model_len", &SessionOptions::max_model_len)
      .def_rw("max_num_seqs", &SessionOptions::max_num_seqs)
      .def_rw("max_num_batched_tokens", &SessionOptions::max_num_batched_tokens)
      .def_rw("kv_cache_memory_bytes", &SessionOptions::kv_cache_memory_bytes)
      .def_rw("tensor_parallel_size", &SessionOptions::tensor_parallel_size)
      .def_rw("pipeline_parallel_size", &SessionOptions::pipeline_parallel_size)
      .def_rw("threads", &SessionOptions::threads)
      .def_rw("gpu_memory_utilization", &SessionOptions::gpu_memory_utilization)
      .def_rw("enable_prefix_caching", &SessionOptions::enable_prefix_caching)
      .def_rw("enable_lora", &SessionOptions::enable_lora)
      .def_rw("enable_expert_parallel", &SessionOptions::enable_expert_parallel)
      .def_rw("tune", &SessionOptions::tune);
}

void bind_outputs(nb::module_& module) {
  nb::class_<SubmittedPrompt>(module, "SubmittedPrompt")
      .def_ro("text", &SubmittedPrompt::text)
      .def_ro("token_ids", &SubmittedPrompt::token_ids)
      .def_ro("num_sequences", &SubmittedPrompt::num_sequences);
  nb::class_<RequestDelta>(module, "RequestDelta")
      .def_prop_ro("request", [](const RequestDelta& delta) { return delta.sequence.request; })
      .def_prop_ro("index", [](const RequestDelta& delta) { return delta.sequence.index; })
      .def_ro("token_ids", &RequestDelta::token_ids)
      .def_ro("text", &RequestDelta::text)
      .def_prop_ro("logprobs", &logprobs_of)
      .def_prop_ro("prompt_logprobs", &prompt_logprobs_of)
      .def_prop_ro("finish_reason", &finish_reason_of)
      .def_ro("stop_reason", &RequestDelta::stop_reason)
      .def_ro("error", &RequestDelta::error)
      .def_ro("is_input_error", &RequestDelta::is_input_error)
      .def_ro("times", &RequestDelta::times);
  nb::class_<RequestTimes>(module, "RequestTimes")
      .def_ro("queue", &RequestTimes::queue)
      .def_ro("prefill", &RequestTimes::prefill)
      .def_ro("first_token", &RequestTimes::first_token)
      .def_ro("decode", &RequestTimes::decode)
      .def_ro("total", &RequestTimes::total)
      .def_ro("num_cached_tokens", &RequestTimes::num_cached_tokens);
}

void bind_requests(nb::module_& module) {
  nb::class_<Session>(module, "Session")
      .def(nb::init<const SessionOptions&>(), nb::arg("options"), WithoutGil())
      .def("stats", &Session::stats, WithoutGil())
      .def("inspect", &Session::inspect, WithoutGil())
      .def("add_adapter", &Session::add_adapter, nb::arg("number"), nb::arg("name"),
           nb::arg("folder"), WithoutGil())
      .def("remove_adapter", &Session::remove_adapter, nb::arg("number"), WithoutGil())
      .def(
          "encode",
          [](const Session& session, const std::string& text, bool adds_special_tokens) {
            return session.tokenizer().encode(text, adds_special_tokens);
          },
          nb::arg("text"), nb::arg("add_special_tokens"), WithoutGil())
      .def(
          "decode",
          [](const Session& session, const std::vector<int32_t>& ids, bool skips_special_tokens) {
            return session.tokenizer().decode(ids, skips_special_tokens);
          },
          nb::arg("ids"), nb::arg("skip_special_tokens"), WithoutGil())
      .def_prop_ro("max_model_len",
                   [](Session& session) { return session.engine().config().max_model_len; })
      .def_prop_ro("warnings", &Session::warnings);
  nb::class_<RequestStream>(module, "RequestStream")
      .def(nb::init<std::shared_ptr<Session>, bool>(), nb::arg("session"), nb::arg("is_whole"))
      .def(
          "submit",
          [](RequestStream& stream, uint64_t number, const std::string& body, bool is_chat,
             int num_prompt_logprobs, std::optional<int64_t> adapter) {
            return stream.submit(body, {number, is_chat, num_prompt_logprobs, adapter});
          },
          nb::arg("number"), nb::arg("body"), nb::arg("is_chat"), nb::arg("num_prompt_logprobs"),
          nb::arg("adapter").none(), WithoutGil())
      .def("cancel", &RequestStream::cancel, nb::arg("number").none(), WithoutGil())
      .def(
          "wait",
          [](RequestStream& stream, int milliseconds) { stream.queue().wait(milliseconds); },
          nb::arg("milliseconds"), WithoutGil())
      .def(
          "take", [](RequestStream& stream) { return stream.queue().take(); }, WithoutGil())
      .def("fileno", [](RequestStream& stream) { return stream.queue().file_descriptor(); });
}

}  // namespace

void bind_session(nb::module_& module) {
  bind_options(module);
  bind_outputs(module);
  bind_requests(module);
}

}  // namespace halley::python
