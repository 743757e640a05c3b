#include "halley/server/anthropic/message_fields.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/str.h"
#include "halley/server/anthropic/message_blocks.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"
#include "halley/server/openai/member_table.h"
#include "halley/server/openai/output_format_fields.h"

namespace halley {
namespace {

constexpr uint8_t kBoth = bit_of(ApiEndpoint::kChat) | bit_of(ApiEndpoint::kTokenize);
constexpr double kInt31Max = 2147483647;

constexpr const char* kSystemSchema =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 1024, "items":
        {"type": "object", "required": ["type", "text"],
         "properties": {"type": {"const": "text"}, "text": {"type": "string"}}}}]})";
constexpr const char* kMessagesSchema =
    R"({"type": "array", "minItems": 1, "maxItems": 4096, "items": {"type": "object",
        "required": ["role", "content"], "properties": {
        "role": {"enum": ["user", "assistant", "system"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 1024, "items":
          {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["text",
          "tool_use", "tool_result", "thinking", "redacted_thinking"]}}}}]}}}})";
constexpr const char* kToolsSchema =
    R"({"type": "array", "maxItems": 128, "items": {"type": "object", "required": ["name"],
        "properties": {"type": {"enum": ["custom", null]},
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
        "description": {"type": ["string", "null"]}, "input_schema": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"]}}}})";
constexpr const char* kToolChoiceSchema =
    R"({"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["auto", "any", "tool", "none"]}, "name": {"type": "string"},
        "disable_parallel_tool_use": {"type": ["boolean", "null"]}}})";
constexpr const char* kStopSchema =
    R"({"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1}})";
constexpr const char* kThinkingSchema =
    R"({"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["enabled", "disabled", "adaptive", "between_tools"]},
        "budget_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 2147483647},
        "display": {"enum": ["summarized", "omitted", null]}}})";
constexpr const char* kOutputConfigSchema =
    R"({"type": "object", "properties": {"effort": {"type": ["string", "null"]},
        "format": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["type", "schema"],
        "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}}}]}}})";

constexpr ObjectMembers kTool = {.path = "tools[]",
                                 .is_open = true,
                                 .read = {"type", "name", "description", "input_schema", "strict"}};
constexpr ObjectMembers kToolChoice = {
    .path = "tool_choice", .is_open = false, .read = {"type", "name", "disable_parallel_tool_use"}};
constexpr ObjectMembers kThinking = {
    .path = "thinking", .is_open = false, .read = {"type", "budget_tokens", "display"}};
constexpr ObjectMembers kOutputConfig = {
    .path = "output_config", .is_open = false, .read = {"effort", "format"}};
constexpr ObjectMembers kFormat = {
    .path = "output_config.format", .is_open = false, .read = {"type", "schema"}};

bool has_member(const OrderedJson& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && !member->is_null();
}

void store_tools_of_message(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = list_of_tools(value);
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string path = str(value.name, "[", i, "]");
    expect_object(json[i], path);
    if (has_member(json[i], "type")) {
      const std::string type = string_member(json[i], "type", path, SIZE_MAX);
      if (type != "custom") {
        throw invalid_field(path + ".type",
                            str(path, ".type: expected \"custom\", got ", quote(type, 40),
                                ": the server has no tools of its own. Declare it with "
                                "input_schema."));
      }
    }
    check_members(json[i], path, kTool, value);
    ApiTool tool = function_of(json[i], path, "input_schema");
    OrderedJson function = {{"name", tool.name}};
    if (has_member(json[i], "description")) function["description"] = json[i]["description"];
    function["parameters"] = tool.parameters;
    add_tool(std::move(tool), {{"type", "function"}, {"function", std::move(function)}},
             path + ".name", request);
  }
}

void store_tool_choice_of_message(const FieldValue& value, ApiRequest& request) {
  using Kind = ToolChoice::Kind;
  check_members(value.json, value.name, kToolChoice, value);
  const std::string type = string_member(value.json, "type", value.name, SIZE_MAX);
  request.allows_parallel_calls = !bool_member(value.json, "disable_parallel_tool_use", value.name);
  if (type == "none") {
    request.tool_choice = ToolChoice{Kind::kNone};
  } else if (type == "auto") {
    request.tool_choice = ToolChoice{Kind::kAuto};
  } else if (type == "any") {
    request.tool_choice = ToolChoice{Kind::kRequired};
  } else if (type == "tool") {
    request.tool_choice =
        ToolChoice{Kind::kNamed, string_member(value.json, "name", value.name, kNameBytesMax)};
  } else {
    throw invalid_field("tool_choice.type", str("tool_choice.type: expected auto, any, tool or ",
                                                "none, got ", quote(type, 40), "."));
  }
}

void store_stop_sequences(const FieldValue& value, ApiRequest& request) {
  if (value.json.is_array()) return store_stop(value, request);
  throw invalid_field(value.name, str(value.name, ": expected a list of strings, got ",
                                      kind_in_words(value.json), "."));
}

void set_thinking(bool is_on, const FieldValue& value, ApiRequest& request) {
  if (!value.rules.template_reads_enable_thinking) return;
  if (!request.template_kwargs.contains("enable_thinking")) {
    request.template_kwargs["enable_thinking"] = is_on;
  }
}

void store_enabled_thinking(const FieldValue& value, ApiRequest& request) {
  set_thinking(true, value, request);
  const auto budget = value.json.find("budget_tokens");
  const bool is_valid = budget != value.json.end() && budget->is_number_unsigned() &&
                        budget->get<uint64_t>() >= 1 &&
                        budget->get<uint64_t>() <= static_cast<uint64_t>(kInt31Max);
  if (!is_valid) {
    throw invalid_field("thinking.budget_tokens",
                        "thinking.budget_tokens: expected an integer of at least 1.");
  }
  if (value.rules.has_reasoning_parser) {
    request.thinking_token_budget = budget->get<int64_t>();
  } else {
    value.ignored.add({}, value.name);  // the model does not think
  }
}

void store_thinking(const FieldValue& value, ApiRequest& request) {
  check_members(value.json, value.name, kThinking, value);
  const std::string type = string_member(value.json, "type", value.name, SIZE_MAX);
  request.includes_reasoning = value.json.value("display", OrderedJson()) != "omitted";
  if (type == "enabled") return store_enabled_thinking(value, request);
  if (type == "disabled") {
    set_thinking(false, value, request);
    const bool must_cut =
        !value.rules.template_reads_enable_thinking && value.rules.has_reasoning_parser;
    if (must_cut) request.thinking_token_budget = 0;
    return;
  }
  if (type == "adaptive" || type == "between_tools") return;  // what the model does by itself
  throw invalid_field(
      "thinking.type",
      str("thinking.type: expected enabled, disabled or adaptive, ", "got ", quote(type, 40), "."));
}

void store_output_config(const FieldValue& value, ApiRequest& request) {
  check_members(value.json, value.name, kOutputConfig, value);
  if (has_member(value.json, "effort")) {
    const ApiField& field = chat_field("reasoning_effort");
    const OrderedJson& effort = value.json["effort"];
    check_field(field, effort);
    field.store({effort, field.name, value.rules, value.ignored}, request);
  }
  if (!has_member(value.json, "format")) return;
  const std::string path = "output_config.format";
  const OrderedJson& format = value.json["format"];
  check_members(format, path, kFormat, value);
  const std::string type = string_member(format, "type", path, SIZE_MAX);
  if (type != "json_schema") {
    throw invalid_field(path + ".type",
                        str(path, ".type: expected json_schema, got ", quote(type, 40), "."));
  }
  store_schema_format(object_member(format, "schema", path), path + ".schema", request);
}

constexpr auto kOwnFields = std::to_array<ApiField>({
    {.name = "max_tokens",
     .endpoints = kBoth,
     .type = FieldType::kInteger,
     .range = {1, kInt31Max},
     .text = "Most tokens to generate, thinking among them. Required, but not by count_tokens.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.max_tokens = v.json.get<int64_t>(); }},
    {.name = "system",
     .endpoints = kBoth,
     .type = FieldType::kOther,
     .schema = kSystemSchema,
     .text = "A text, or text blocks: a message of role system before all others.",
     .store = store_system},
    {.name = "messages",
     .endpoints = kBoth,
     .type = FieldType::kOther,
     .is_required = true,
     .schema = kMessagesSchema,
     .text = "The conversation: texts, or blocks of type text, tool_use, tool_result and thinking. "
             "Images, documents and others are rejected. The model goes on with a last message "
             "of role assistant.",
     .store = store_message_list},
    {.name = "tools",
     .endpoints = kBoth,
     .type = FieldType::kOther,
     .schema = kToolsSchema,
     .text = "Up to 128 tools with an input_schema. Tools that Anthropic defines (bash_..., "
             "web_search_...) are rejected.",
     .store = store_tools_of_message},
    {.name = "tool_choice",
     .endpoints = kBoth,
     .type = FieldType::kOther,
     .schema = kToolChoiceSchema,
     .text = "type auto, any, tool (with name) or none; disable_parallel_tool_use: only the first "
             "call of an answer is given.",
     .store = store_tool_choice_of_message},
    {.name = "stop_sequences",
     .endpoints = kBoth,
     .type = FieldType::kOther,
     .schema = kStopSchema,
     .text = "Texts that end the output: up to 64, together at most 4096 bytes.",
     .store = store_stop_sequences},
    {.name = "thinking",
     .endpoints = kBoth,
     .type = FieldType::kOther,
     .schema = kThinkingSchema,
     .text = "enabled: the most tokens of reasoning are budget_tokens; ignored for a model without "
             "reasoning. disabled: none. adaptive, and without the field: as the model does. "
             "display omitted: the answer leaves it out.",
     .store = store_thinking},
    {.name = "output_config",
     .endpoints = kBoth,
     .type = FieldType::kOther,
     .schema = kOutputConfigSchema,
     .text = "effort: reasoning_effort of chats. format: the output is JSON of this json_schema.",
     .store = store_output_config},
});

// The rows of chats that mean the same here; those behind top_k are no fields of Anthropic's.
constexpr auto kChatFields = std::to_array<const char*>(
    {"model", "stream", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
     "presence_penalty", "frequency_penalty", "seed", "chat_template_kwargs", "priority",
     "cache_salt", "timeout", "precision", "slo"});

constexpr auto kNeutral = std::to_array<NeutralField>({
    {"metadata", kBoth, nullptr, "Not used."},
    {"service_tier", kBoth, R"(["auto", "standard_only"])", "Use priority.", true},
    {"cache_control", kBoth, "[]", "Prefixes are cached for all requests.", true},
    {"context_management", kBoth, "[]", "Shorten the conversation yourself.", true},
    {"container", kBoth, "[]", "The server runs no tools."},
    {"mcp_servers", kBoth, "[[]]", "The server runs no tools."},
    {"inference_geo", kBoth, nullptr, "Not used."},
    {"speed", kBoth, R"(["standard"])", "There is one speed.", true},
    {"diagnostics", kBoth, nullptr, "Not used."},
    {"user_profile_id", kBoth, nullptr, "Not used."},
    {"betas", kBoth, "[[]]", "Not used.", true},
    {"max_completion_tokens", kBoth, "[]", "Use max_tokens."},
    {"stop", kBoth, "[]", "Use stop_sequences."},
    {"response_format", kBoth, "[]", "Use output_config.format."},
});

constexpr auto kOperations = std::to_array<ApiOperation>({
    {.method = "post",
     .path = "/v1/messages",
     .summary = "Answer a conversation",
     .request = "MessageRequest",
     .has_stream = true,
     .answer = "Message"},
    {.method = "post",
     .path = "/v1/messages/count_tokens",
     .summary = "Count the tokens of a conversation",
     .request = "MessageRequest",
     .answer = "TokenCount"},
});

constexpr auto kAnswers = std::to_array<AnswerSchema>({
    {"Message", R"({"type": "object", "required": ["id", "type", "role", "model", "content",
        "stop_reason", "stop_sequence", "usage"], "properties": {"id": {"type": "string"},
        "type": {"const": "message"}, "role": {"const": "assistant"}, "model": {"type": "string"},
        "stop_reason": {"enum": ["end_turn", "stop_sequence", "tool_use", "max_tokens"]},
        "stop_sequence": {"type": ["string", "null"]},
        "content": {"type": "array", "items": {"type": "object", "required": ["type"],
          "properties": {"type": {"enum": ["text", "thinking", "tool_use"]},
          "text": {"type": "string"}, "thinking": {"type": "string"},
          "signature": {"type": "string"}, "id": {"type": "string"}, "name": {"type": "string"},
          "input": {"type": "object"}}}},
        "usage": {"type": "object", "required": ["input_tokens", "output_tokens"], "properties": {
          "input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"},
          "cache_read_input_tokens": {"type": "integer"},
          "cache_creation_input_tokens": {"type": "integer"}}}}})"},
    {"TokenCount", R"({"type": "object", "required": ["input_tokens"],
        "properties": {"input_tokens": {"type": "integer", "minimum": 0}}})"},
});

std::vector<ApiField> make_fields() {
  std::vector<ApiField> fields(kOwnFields.begin(), kOwnFields.end());
  for (const char* name : kChatFields) {
    ApiField field = chat_field(name);
    field.endpoints = kBoth;
    fields.push_back(field);
  }
  return fields;
}

}  // namespace

FieldTables message_tables() {
  static const std::vector<ApiField> fields = make_fields();
  return {fields, kNeutral};
}

ApiDescription message_description() {
  return {.operations = kOperations,
          .schema = "MessageRequest",
          .tables = message_tables(),
          .answers = kAnswers};
}

ApiRequest parse_message_request(std::string_view body, ApiEndpoint endpoint,
                                 const RequestRules& rules) {
  const OrderedJson json = parse_body(body);
  ApiRequest request;
  request.endpoint = endpoint;
  store_fields(json, message_tables(), rules, request);
  require_field(request.max_tokens.has_value() || endpoint == ApiEndpoint::kTokenize, "max_tokens");
  return request;
}

}  // namespace halley
