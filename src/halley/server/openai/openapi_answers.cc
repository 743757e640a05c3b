#include "halley/server/openai/openapi_answers.h"

#include <array>

namespace halley {
namespace {

// Members that are always there are required; an answer may have more.
constexpr auto kAnswers = std::to_array<AnswerSchema>({
    {"Usage", R"({"type": "object",
        "required": ["prompt_tokens", "completion_tokens", "total_tokens"], "properties": {
        "prompt_tokens": {"type": "integer", "minimum": 0},
        "completion_tokens": {"type": "integer", "minimum": 0},
        "total_tokens": {"type": "integer", "minimum": 0},
        "prompt_tokens_details": {"type": "object", "properties": {
          "cached_tokens": {"type": "integer", "minimum": 0,
                            "description": "Of the prompt, from the prefix cache."}}},
        "completion_tokens_details": {"type": "object", "properties": {
          "reasoning_tokens": {"type": "integer", "minimum": 0},
          "precision": {"type": "object", "properties": {"full": {"type": "integer"},
                        "low": {"type": "integer"}}}}}}})"},
    {"FinishReason", R"({"enum": ["stop", "length", "tool_calls"]})"},
    {"TokenLogprob",
     R"({"type": "object", "required": ["token", "logprob", "bytes"], "properties": {
        "token": {"type": "string"}, "logprob": {"type": "number"},
        "bytes": {"type": ["array", "null"], "items": {"type": "integer"},
                  "description": "null where the token is no whole text."},
        "top_logprobs": {"type": "array",
                         "items": {"$ref": "#/components/schemas/TokenLogprob"}}}})"},
    {"Completion", R"({"type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
        "id": {"type": "string"}, "object": {"const": "text_completion"},
        "created": {"type": "integer"}, "model": {"type": "string"},
        "usage": {"$ref": "#/components/schemas/Usage"},
        "choices": {"type": "array", "items": {"type": "object",
          "required": ["index", "text", "logprobs", "finish_reason", "stop_reason"], "properties": {
          "index": {"type": "integer", "minimum": 0}, "text": {"type": "string"},
          "finish_reason": {"$ref": "#/components/schemas/FinishReason"},
          "stop_reason": {"type": ["string", "null"]},
          "token_ids": {"type": "array", "items": {"type": "integer"}},
          "prompt_token_ids": {"type": "array", "items": {"type": "integer"}},
          "prompt_logprobs": {"type": "array"},
          "logprobs": {"anyOf": [{"type": "null"}, {"type": "object",
            "required": ["text_offset", "token_logprobs", "tokens", "top_logprobs"], "properties": {
            "text_offset": {"type": "array", "items": {"type": "integer"}},
            "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
            "tokens": {"type": "array", "items": {"type": "string"}},
            "top_logprobs": {"type": ["array", "null"], "items": {"type": ["object", "null"],
              "additionalProperties": {"type": "number"}}}}}]}}}}}})"},
    {"ChatCompletion", R"({"type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
        "id": {"type": "string"}, "object": {"const": "chat.completion"},
        "created": {"type": "integer"}, "model": {"type": "string"},
        "usage": {"$ref": "#/components/schemas/Usage"},
        "prompt_token_ids": {"type": "array", "items": {"type": "integer"}},
        "prompt_logprobs": {"type": ["array", "null"]},
        "choices": {"type": "array", "items": {"type": "object",
          "required": ["index", "message", "logprobs", "finish_reason", "stop_reason"],
          "properties": {
          "index": {"type": "integer", "minimum": 0},
          "finish_reason": {"$ref": "#/components/schemas/FinishReason"},
          "stop_reason": {"type": ["string", "null"]},
          "token_ids": {"type": "array", "items": {"type": "integer"}},
          "logprobs": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["content"],
            "properties": {"content": {"type": "array",
              "items": {"$ref": "#/components/schemas/TokenLogprob"}}}}]},
          "message": {"type": "object", "required": ["role", "content"], "properties": {
            "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
            "refusal": {"type": "null"}, "reasoning": {"type": ["string", "null"]},
            "reasoning_content": {"type": ["string", "null"]},
            "tool_calls": {"type": "array", "items": {"type": "object",
              "required": ["id", "type", "function"], "properties": {
              "id": {"type": "string"}, "type": {"const": "function"},
              "function": {"type": "object", "required": ["name", "arguments"], "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "string",
                              "description": "A text of JSON."}}}}}}}}}}}}})"},
    {"Model", R"({"type": "object", "required": ["id", "object", "created", "owned_by"],
        "properties": {"id": {"type": "string"}, "object": {"const": "model"},
        "created": {"type": "integer"}, "owned_by": {"type": "string"}, "root": {"type": "string"},
        "parent": {"type": ["string", "null"], "description": "An adapter's model."},
        "max_model_len": {"type": "integer", "description": "Tokens of prompt and output."}}})"},
    {"LoadAdapter", R"({"type": "object", "required": ["lora_name", "lora_path"],
        "additionalProperties": false, "properties": {
        "lora_name": {"type": "string", "minLength": 1, "maxLength": 128},
        "lora_path": {"type": "string", "minLength": 1, "description":
          "A folder with adapter_config.json, in that of --lora-folder."},
        "load_inplace": {"type": ["boolean", "null"], "description":
          "Replace the adapter of that name."}}})"},
    {"UnloadAdapter", R"({"type": "object", "required": ["lora_name"],
        "additionalProperties": false, "properties": {"lora_name": {"type": "string"}}})"},
    {"AdapterChange", R"({"type": "object", "required": ["status", "lora_name"], "properties": {
        "status": {"enum": ["loaded", "unloaded"]}, "lora_name": {"type": "string"}}})"},
    {"ModelList", R"({"type": "object", "required": ["object", "data"], "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}})"},
    {"Tokens", R"({"type": "object", "required": ["count", "max_model_len", "tokens", "token_strs"],
        "properties": {"count": {"type": "integer"}, "max_model_len": {"type": "integer"},
        "tokens": {"type": "array", "items": {"type": "integer"}},
        "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}})"},
    {"PromptText", R"({"type": "object", "required": ["prompt"],
        "properties": {"prompt": {"type": "string"}}})"},
    {"Status", R"({"type": "object", "required": ["status"],
        "properties": {"status": {"type": "string"}}})"},
    {"Description", R"({"type": "object", "required": ["openapi", "info", "paths"]})"},
    {"Version", R"({"type": "object", "required": ["version"],
        "properties": {"version": {"type": "string"}}})"},
    {"Load", R"({"type": "object", "required": ["server_load"], "properties": {
        "server_load": {"type": "integer", "description":
          "Sequences that run, wait or are prepared."}}})"},
    {"Slots", R"({"type": "array", "items": {"type": "object",
        "required": ["id", "n_ctx", "is_processing"], "properties": {"id": {"type": "integer"},
        "n_ctx": {"type": "integer"}, "is_processing": {"type": "boolean"}}}})"},
    {"Props", R"({"type": "object", "required": ["default_generation_settings", "total_slots"],
        "properties": {"default_generation_settings": {"type": "object"},
        "total_slots": {"type": "integer"}, "model_alias": {"type": "string"},
        "chat_template": {"type": ["string", "null"]}, "modalities": {"type": "object"},
        "build_info": {"type": "string"}}})"},
    {"ServerInfo", R"({"type": "object", "required": ["version", "max_model_len"], "properties": {
        "version": {"type": "string"},
        "served_model_names": {"type": "array", "items": {"type": "string"}},
        "max_model_len": {"type": "integer"}, "max_num_seqs": {"type": "integer"},
        "max_num_batched_tokens": {"type": "integer"}, "max_num_queued": {"type": "integer"},
        "max_num_queued_tokens": {"type": "integer"}, "block_size": {"type": "integer"},
        "num_blocks": {"type": "integer"}, "enable_prefix_caching": {"type": "boolean"},
        "scheduling_policy": {"type": "string"}, "precision": {"type": "string"},
        "tool_call_parser": {"type": "string"}, "reasoning_parser": {"type": "string"},
        "stored_responses": {"type": "integer"},
        "embedding_size": {"type": "integer", "description": "0: the model gives no embeddings."},
        "pooling": {"type": "string"}, "scoring": {"type": "string"}}})"},
    {"PrecisionState", R"({"type": "object", "required": ["mode", "slo", "precisions"],
        "properties": {"mode": {"type": "string"}, "slo": {"type": "object"},
        "precisions": {"type": "array", "items": {"type": "string"}},
        "precision": {"type": ["string", "null"]}, "reason": {"type": "string"},
        "num_switches": {"type": "integer"},
        "last_switches": {"type": "array", "items": {"type": "object"}}}})"},
});

}  // namespace

std::span<const AnswerSchema> openai_answers() { return kAnswers; }

}  // namespace halley
