#include "halley/server/app/server_state.h"

#include <string>
#include <variant>

#include "halley/base/str.h"
#include "halley/engine/engine.h"
#include "halley/sampling/base/sampling_fields.h"

namespace halley {
namespace {

OrderedJson sampling_of(const SamplingParams& params) {
  OrderedJson json = OrderedJson::object();
  for (const SamplingField& field : sampling_fields()) {
    std::visit([&](auto member) { json[field.name] = params.*member; }, field.member);
  }
  return json;
}

}  // namespace

OrderedJson props_of(const AppContext& context) {
  const EngineConfig& config = context.engine->config();
  const std::string& source = context.format.source();
  return {{"default_generation_settings",
           {{"n_ctx", config.max_model_len}, {"params", sampling_of(context.rules.sampling)}}},
          {"total_slots", config.max_num_seqs},
          {"model_alias", context.config.model_names.front()},
          {"chat_template", source.empty() ? OrderedJson() : OrderedJson(source)},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"build_info", str("halley ", context.config.version)}};
}

OrderedJson slots_of(const AppContext& context) {
  const EngineConfig& config = context.engine->config();
  const int64_t num_running = context.engine->stats().num_running;
  OrderedJson slots = OrderedJson::array();
  for (int64_t i = 0; i < config.max_num_seqs; ++i) {
    slots.push_back(
        {{"id", i}, {"n_ctx", config.max_model_len}, {"is_processing", i < num_running}});
  }
  return slots;
}

OrderedJson load_of(const AppContext& context) {
  const EngineStats stats = context.engine->stats();
  return {{"server_load", stats.num_running + stats.num_waiting + context.num_preprocessing}};
}

OrderedJson server_info_of(const AppContext& context) {
  const EngineConfig& config = context.engine->config();
  const ReasoningDialect* reasoning = context.format.reasoning();
  const PoolingConfig& pooling = context.config.pooling;
  return {{"version", context.config.version},
          {"served_model_names", context.config.model_names},
          {"max_model_len", config.max_model_len},
          {"max_num_seqs", config.max_num_seqs},
          {"max_num_batched_tokens", config.max_num_batched_tokens},
          {"max_num_queued", config.max_num_queued},
          {"max_num_queued_tokens", config.max_num_queued_tokens},
          {"block_size", config.page_tokens},
          {"num_blocks", context.engine->stats().num_pages},
          {"enable_prefix_caching", config.has_prefix_caching},
          {"scheduling_policy", name_of(config.scheduling_policy)},
          {"precision", name_of(config.precision)},
          {"tool_call_parser", name_of(context.format.dialect())},
          {"reasoning_parser", reasoning != nullptr ? reasoning->name : "none"},
          {"stored_responses", context.config.stored_responses.num_responses_max},
          {"embedding_size", context.engine->hidden_size()},
          {"pooling", pooling.kind == Pooling::Kind::kMean ? "mean" : "last"},
          {"scoring", pooling.yes_no ? "yes-no" : "cosine"}};
}

}  // namespace halley
