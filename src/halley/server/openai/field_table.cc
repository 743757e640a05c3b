#include "halley/server/openai/field_table.h"

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "halley/base/check.h"
#include "halley/sampling/base/sampling_fields.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"
#include "halley/server/openai/output_format_fields.h"

namespace halley {
namespace {

constexpr uint8_t kCompletions = bit_of(ApiEndpoint::kCompletions);
constexpr uint8_t kChat = bit_of(ApiEndpoint::kChat);
constexpr uint8_t kTokenize = bit_of(ApiEndpoint::kTokenize);
constexpr uint8_t kDetokenize = bit_of(ApiEndpoint::kDetokenize);
constexpr uint8_t kGenerate = kCompletions | kChat;
constexpr uint8_t kTemplate = kChat | kTokenize;
constexpr uint8_t kAll = kGenerate | kTokenize | kDetokenize;

constexpr double kInt31Max = 2147483647;
// JSON numbers are compared as doubles; the parser rejects what is no int64 itself.
constexpr double kInt63Max = 9223372036854775807.0;

constexpr const char* kTokenIdsSchema =
    R"({"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 128})";
constexpr const char* kPromptSchema =
    R"({"anyOf": [{"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1024},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        {"type": "array", "minItems": 1, "maxItems": 1024,
         "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}}]})";
constexpr const char* kMessagesSchema =
    R"({"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "object",
        "required": ["role"], "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items":
          {"type": "object", "required": ["type", "text"],
           "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]},
        "name": {"type": ["string", "null"]}, "tool_call_id": {"type": ["string", "null"]},
        "reasoning_content": {"type": ["string", "null"]},
        "tool_calls": {"type": ["array", "null"], "maxItems": 128, "items": {"type": "object",
          "required": ["function"], "properties": {"id": {"type": "string"},
          "type": {"const": "function"}, "function": {"type": "object", "required": ["name"],
          "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}}}}}}}}})";
constexpr const char* kToolsSchema =
    R"({"type": "array", "maxItems": 128, "items": {"type": "object",
        "required": ["type", "function"], "properties": {"type": {"const": "function"},
        "function": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
        "description": {"type": "string"}, "parameters": {"type": "object"},
        "strict": {"type": "boolean"}}}}}})";
constexpr const char* kToolChoiceSchema =
    R"({"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object",
        "required": ["type", "function"], "properties": {"type": {"const": "function"},
        "function": {"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}}}}}]})";
constexpr const char* kStopSchema =
    R"({"anyOf": [{"type": "string", "minLength": 1},
        {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1}}]})";
constexpr const char* kDryBreakersSchema =
    R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 64},
        {"type": "array", "maxItems": 32,
         "items": {"type": "string", "minLength": 1, "maxLength": 64}}]})";
constexpr const char* kLogitBiasSchema =
    R"({"type": "object", "maxProperties": 1024,
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})";
constexpr const char* kBadWordsSchema =
    R"({"type": "array", "maxItems": 128,
        "items": {"type": "string", "minLength": 1, "maxLength": 256}})";
constexpr const char* kAllowedIdsSchema =
    R"({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}})";
constexpr const char* kStreamOptionsSchema =
    R"({"type": "object", "properties": {"include_usage": {"type": "boolean"},
        "continuous_usage_stats": {"type": "boolean"}}})";
constexpr const char* kPrecisionSchema = R"({"enum": ["full", "low", "auto"]})";
constexpr const char* kSloSchema =
    R"({"type": "object", "properties": {
        "ttft_ms": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400000},
        "tpot_ms": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400000}}})";
constexpr const char* kTokensSchema =
    R"({"type": "array", "items": {"type": "integer", "minimum": 0}})";

// The store functions of most rows call these.
bool as_bool(const FieldValue& value) { return value.json.get<bool>(); }
int64_t as_int(const FieldValue& value) { return value.json.get<int64_t>(); }
double as_double(const FieldValue& value) { return value.json.get<double>(); }

constexpr auto kInputFields = std::to_array<ApiField>({
    {.name = "model",
     .endpoints = kAll,
     .type = FieldType::kString,
     .range = {1, 256},
     .text = "One of the names of /v1/models; 404 for another.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.model = v.json.get<std::string>(); }},
    {.name = "prompt",
     .endpoints = kCompletions | kTokenize,
     .type = FieldType::kOther,
     .schema = kPromptSchema,
     .text = "A text, up to 1024 texts, token ids, or up to 1024 lists of ids.",
     .store = store_prompt},
    {.name = "messages",
     .endpoints = kTemplate,
     .type = FieldType::kOther,
     .schema = kMessagesSchema,
     .text = "The conversation. Roles system, developer (rendered as system), user, assistant, "
             "tool; content is a string or text parts, which are joined by line ends. Images, "
             "audio and files are rejected.",
     .store = store_messages},
    {.name = "tokens",
     .endpoints = kDetokenize,
     .type = FieldType::kOther,
     .is_required = true,
     .schema = kTokensSchema,
     .text = "Token ids.",
     .store = store_tokens},
    {.name = "max_tokens",
     .endpoints = kGenerate,
     .type = FieldType::kInteger,
     .range = {0, kInt31Max},
     .text = "Most tokens to generate. Default: 16 for completions, the rest of the context for "
             "chats. 0 scores the prompt alone and needs echo.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.max_tokens = as_int(v); }},
    {.name = "max_completion_tokens",
     .endpoints = kChat,
     .type = FieldType::kInteger,
     .range = {1, kInt31Max},
     .text = "The newer name of max_tokens; where both are given they must agree.",
     .store =
         [](const FieldValue& v, ApiRequest& r) {
           if (r.max_tokens && *r.max_tokens != as_int(v)) {
             throw invalid_field(v.name,
                                 "max_completion_tokens: expected the value of max_tokens, which "
                                 "is its old name, got another one. Send one of them.");
           }
           r.max_tokens = as_int(v);
         }},
    {.name = "min_tokens",
     .endpoints = kGenerate,
     .type = FieldType::kInteger,
     .range = {0, kInt31Max},
     .default_json = "0",
     .text = "No stop before this many; at most max_tokens.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.sampling.min_tokens = as_int(v); }},
});

// The rows of the sampling parameters stand between these tables.
constexpr auto kOutputFields = std::to_array<ApiField>({
    {.name = "dry_sequence_breakers",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .default_json = R"(["\n", ":", "\"", "*"])",
     .schema = kDryBreakersSchema,
     .text = "Up to 32 texts of 1 to 64 bytes that DRY's repetitions do not reach across; an empty "
             "list: none.",
     .store = store_dry_sequence_breakers},
    {.name = "n",
     .endpoints = kGenerate,
     .type = FieldType::kInteger,
     .range = {1, 128},
     .default_json = "1",
     .text = "Answers for each prompt; times the number of prompts at most 1024.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.n = as_int(v); }},
    {.name = "stream",
     .endpoints = kGenerate,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "Send the answer in pieces, as server-sent events.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.is_stream = as_bool(v); }},
    {.name = "stream_options",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kStreamOptionsSchema,
     .text = "include_usage: a last chunk with the usage; continuous_usage_stats: it is in every "
             "chunk. Only with stream.",
     .store = store_stream_options},
    {.name = "stop",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kStopSchema,
     .text = "Texts that end the output: up to 64, together at most 4096 bytes.",
     .store = store_stop},
    {.name = "stop_token_ids",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kTokenIdsSchema,
     .text = "Up to 128 ids that end the output.",
     .store = store_stop_token_ids},
    {.name = "include_stop_str_in_output",
     .endpoints = kGenerate,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "Keep what ended the output in the text.",
     .store = [](const FieldValue& v,
                 ApiRequest& r) { r.sampling.include_stop_str_in_output = as_bool(v); }},
    {.name = "ignore_eos",
     .endpoints = kGenerate,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "Go on behind the model's end token.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.sampling.ignore_eos = as_bool(v); }},
    {.name = "skip_special_tokens",
     .endpoints = kGenerate,
     .type = FieldType::kBoolean,
     .default_json = "true",
     .text = "Leave special tokens out of the text.",
     .store = [](const FieldValue& v,
                 ApiRequest& r) { r.sampling.skip_special_tokens = as_bool(v); }},
    {.name = "seed",
     .endpoints = kGenerate,
     .type = FieldType::kInteger,
     .range = {-kInt63Max, kInt63Max},
     .text = "The same seed gives the same text on the same server. Default: a random one.",
     .store = [](const FieldValue& v,
                 ApiRequest& r) { r.sampling.seed = static_cast<uint64_t>(as_int(v)); }},
    {.name = "bad_words",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kBadWordsSchema,
     .text =
         "Up to 128 texts that the output must not have: the tokens of each, with a space before "
         "it and without, do not follow one another. Not with a format, demanded calls, a "
         "budget of reasoning or allowed_token_ids.",
     .store = store_bad_words},
    {.name = "allowed_token_ids",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kAllowedIdsSchema,
     .text =
         "The output has these tokens alone, so that it ends before max_tokens only where an end "
         "token is among them. Not with a format, demanded calls or a budget of reasoning.",
     .store = store_allowed_token_ids},
    {.name = "truncate_prompt_tokens",
     .endpoints = kGenerate,
     .type = FieldType::kInteger,
     .range = {-1, kInt31Max},
     .text = "Only the last tokens of each prompt, at most this many; -1: as many as have room "
             "before max_tokens.",
     .store = store_truncate_prompt_tokens},
    {.name = "logit_bias",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kLogitBiasSchema,
     .text = "Token ids to -100 .. 100, added to their logits; up to 1024 of them.",
     .store = store_logit_bias},
    {.name = "logprobs",
     .endpoints = kCompletions,
     .type = FieldType::kInteger,
     .range = {0, 20},
     .text = "Log probabilities of the tokens, and of this many most likely ones.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.num_completion_logprobs = as_int(v); }},
    {.name = "logprobs",
     .endpoints = kChat,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "Log probabilities of the output's tokens.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.has_chat_logprobs = as_bool(v); }},
    {.name = "top_logprobs",
     .endpoints = kChat,
     .type = FieldType::kInteger,
     .range = {0, 20},
     .default_json = "0",
     .text = "How many most likely tokens for each; needs logprobs.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.num_top_logprobs = as_int(v); }},
    {.name = "prompt_logprobs",
     .endpoints = kGenerate,
     .type = FieldType::kInteger,
     .range = {0, 20},
     .text =
         "Log probabilities of the prompt's tokens, and of this many most likely ones, once for "
         "each prompt. Its whole prompt is computed, cached or not. Without stream and echo.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.num_prompt_logprobs = as_int(v); }},
    {.name = "return_token_ids",
     .endpoints = kGenerate,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "token_ids: the ids of the output; prompt_token_ids: those of the prompt.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.returns_token_ids = as_bool(v); }},
    {.name = "echo",
     .endpoints = kCompletions,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "The prompt stands before the output; with logprobs, its log probabilities too.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.has_echo = as_bool(v); }},
    {.name = "add_special_tokens",
     .endpoints = kGenerate | kTokenize,
     .type = FieldType::kBoolean,
     .text = "Put a BOS (or what the tokenizer adds) around the text. Default: true for prompts, "
             "false for chats, whose template writes it.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.adds_special_tokens = as_bool(v); }},
    {.name = "add_generation_prompt",
     .endpoints = kTemplate,
     .type = FieldType::kBoolean,
     .default_json = "true",
     .text = "End the rendered conversation with the beginning of the assistant's turn.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.adds_generation_prompt = as_bool(v); }},
    {.name = "continue_final_message",
     .endpoints = kTemplate,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "Let the model go on with the last message. Needs add_generation_prompt = false.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.continues_final_message = as_bool(v); }},
    {.name = "chat_template_kwargs",
     .endpoints = kTemplate,
     .type = FieldType::kOther,
     .schema = R"({"type": "object", "maxProperties": 64})",
     .text = "More variables for the template, as enable_thinking.",
     .store = store_chat_template_kwargs},
    {.name = "reasoning_effort",
     .endpoints = kTemplate,
     .type = FieldType::kString,
     .range = {1, 32},
     .text =
         "A variable for the template (none, low, medium, high, ...), where chat_template_kwargs "
         "has none of its name. A template that reads enable_thinking instead gets that: false for "
         "none, else true. Ignored where the template reads neither.",
     .store = store_reasoning_effort},
    {.name = "include_reasoning",
     .endpoints = kChat,
     .type = FieldType::kBoolean,
     .default_json = "true",
     .text = "false: the answer leaves out the model's reasoning, which it generates all the same.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.includes_reasoning = as_bool(v); }},
    {.name = "thinking_token_budget",
     .endpoints = kChat,
     .type = FieldType::kInteger,
     .range = {-1, kInt31Max},
     .text = "Most tokens of reasoning; the answer begins after them. -1: any number, as without "
             "it. Needs a model with a reasoning parser.",
     .store = store_thinking_token_budget},
    {.name = "tools",
     .endpoints = kTemplate,
     .type = FieldType::kOther,
     .schema = kToolsSchema,
     .text = "Up to 128 functions that the model may call.",
     .store = store_tools},
    {.name = "tool_choice",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .schema = kToolChoiceSchema,
     .text = "none, auto (default where there are tools), required, or one function by name.",
     .store = store_tool_choice},
    {.name = "parallel_tool_calls",
     .endpoints = kChat,
     .type = FieldType::kBoolean,
     .default_json = "true",
     .text = "false: only the first call of an answer is given.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.allows_parallel_calls = as_bool(v); }},
    {.name = "priority",
     .endpoints = kGenerate,
     .type = FieldType::kInteger,
     .range = {-1000, 1000},
     .default_json = "0",
     .text = "Lower ones run first.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.priority = as_int(v); }},
    {.name = "cache_salt",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {1, 256},
     .text = "Cached prefixes are shared among requests with the same salt alone.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.cache_salt = v.json.get<std::string>(); }},
    {.name = "timeout",
     .endpoints = kGenerate,
     .type = FieldType::kNumber,
     .range = {0, 86400, true},
     .text = "Seconds after which the request ends with the error \"timeout\". Default: the "
             "server's --request-timeout.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.timeout_s = as_double(v); }},
    {.name = "precision",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {1, 16},
     .schema = kPrecisionSchema,
     .text = "full: all tokens are computed in full precision, the prompt's too; auto: in the best "
             "precision that holds the SLOs; low: in any, where the model has two. Default: the "
             "server's --precision.",
     .store = store_precision},
    {.name = "slo",
     .endpoints = kGenerate,
     .type = FieldType::kOther,
     .schema = kSloSchema,
     .text = "ttft_ms, tpot_ms: limits of the time to the first token and of the mean time of a "
             "further one, in milliseconds. Default for each: the server's --slo.",
     .store = store_slo},
    {.name = "user",
     .endpoints = kGenerate,
     .type = FieldType::kString,
     .range = {0, 512},
     .text = "Who asks, for the client's own records. Not used.",
     .store = [](const FieldValue&, ApiRequest&) {}},
    {.name = "return_token_strs",
     .endpoints = kTokenize,
     .type = FieldType::kBoolean,
     .default_json = "false",
     .text = "The vocabulary's entries, together with the ids.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.returns_token_strs = as_bool(v); }},
});

constexpr const char* kNull = "[]";
constexpr const char* kFalse = "[false]";
constexpr const char* kTrue = "[true]";

constexpr auto kNeutralFields = std::to_array<NeutralField>({
    {"suffix", kCompletions, R"([""])", "No model here fills in; put the text into prompt."},
    {"best_of", kCompletions, "[1]", "Ask for n answers and choose."},
    {"use_beam_search", kGenerate, kFalse, "There is no beam search."},
    {"length_penalty", kGenerate, "[1]", "Of beam search."},
    {"spaces_between_special_tokens", kGenerate, kTrue, "Texts are decoded as the tokenizer says."},
    {"return_tokens_as_token_ids", kGenerate, kFalse, "Use return_token_ids."},
    {"guided_decoding_backend", kGenerate, kNull, "One matcher reads them all.", true},
    {"guided_whitespace_pattern", kGenerate, kNull, "Write a grammar: structured_outputs."},
    {"chat_template", kTemplate, kNull,
     "A template from a request is not run; start the server with --chat-template."},
    {"documents", kChat, kNull, "Put them into a message, or into chat_template_kwargs."},
    {"functions", kChat, "[[]]", "Use tools."},
    {"function_call", kChat, R"(["none"])", "Use tool_choice."},
    {"modalities", kChat, R"([["text"]])", "Models here read and write text alone."},
    {"audio", kChat, kNull, "Models here read and write text alone."},
    {"prediction", kChat, kNull, "There is no speculation with the client's text.", true},
    {"web_search_options", kChat, kNull, "The server fetches nothing."},
    {"reasoning", kChat, kNull, "Use reasoning_effort, or chat_template_kwargs.", true},
    {"thinking", kChat, kNull, "Use chat_template_kwargs.", true},
    {"enable_thinking", kChat, kNull, "Use chat_template_kwargs."},
    {"verbosity", kChat, R"(["medium"])", "Say it in a message.", true},
    {"store", kGenerate, kFalse, "Nothing is kept.", true},
    {"metadata", kGenerate, nullptr, "Not used."},
    {"service_tier", kGenerate, R"(["auto", "default"])", "Use priority.", true},
    {"cache_prompt", kGenerate, kTrue, "Prefixes are cached for all requests; see cache_salt.",
     true},
    {"prompt_cache_retention", kGenerate, nullptr, "Not used: memory alone decides."},
    {"usage", kChat, kNull, "Whole answers have it; for streams: stream_options.", true},
    {"cache_control", kGenerate, kNull, "Prefixes are cached for all requests.", true},
    {"betas", kGenerate, "[[]]", "Not used.", true},
    {"max_new_tokens", kGenerate, kNull, "Use max_tokens."},
    {"n_predict", kGenerate, kNull, "Use max_tokens."},
    {"stop_sequences", kGenerate, kNull, "Use stop."},
    {"system", kChat, kNull, "Use a message of role system."},
    {"extra_body", kGenerate, kNull, "Put its members into the body itself."},
    {"safety_identifier", kGenerate, nullptr, "Not used."},
    {"prompt_cache_key", kGenerate, nullptr, "Not used: prefixes are found by their tokens."},
});

/// `default_json` must outlive the row.
ApiField make_api_field(const SamplingField& field, const std::string& default_json) {
  const bool is_real = std::holds_alternative<double ChoiceParams::*>(field.member);
  return {.name = field.name,
          .endpoints = kGenerate,
          .type = is_real ? FieldType::kNumber : FieldType::kInteger,
          .range = {field.range.min, field.request_max.value_or(field.range.max),
                    field.range.excludes_min},
          .default_json = default_json.c_str(),
          .text = field.text,
          .store = store_sampling_parameter};
}

struct FieldTable {
  std::vector<std::string> defaults;  // of the sampling parameters
  std::vector<ApiField> fields;
};

FieldTable make_field_table() {
  FieldTable table;
  for (const SamplingField& field : sampling_fields()) {
    table.defaults.push_back(default_json(field));
  }
  table.fields.assign(kInputFields.begin(), kInputFields.end());
  for (size_t i = 0; i < table.defaults.size(); ++i) {
    table.fields.push_back(make_api_field(sampling_fields()[i], table.defaults[i]));
  }
  table.fields.insert(table.fields.end(), kOutputFields.begin(), kOutputFields.end());
  const std::span<const ApiField> formats = output_format_fields();
  table.fields.insert(table.fields.end(), formats.begin(), formats.end());
  return table;
}

}  // namespace

std::span<const ApiField> api_fields() {
  static const FieldTable table = make_field_table();
  return table.fields;
}
std::span<const NeutralField> neutral_fields() { return kNeutralFields; }

const ApiField& chat_field(std::string_view name) {
  const ApiField* found = nullptr;
  for (const ApiField& field : api_fields()) {
    if (field.name == name && (field.endpoints & kChat) != 0) found = &field;
  }
  HALLEY_CHECK(found != nullptr, name);
  return *found;
}

}  // namespace halley
