#include "halley/server/responses/response_fields.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"
#include "halley/server/openai/member_table.h"
#include "halley/server/openai/output_format_fields.h"
#include "halley/server/responses/input_items.h"

namespace halley {
namespace {

constexpr uint8_t kChat = bit_of(ApiEndpoint::kChat);
constexpr double kInt31Max = 2147483647;
constexpr size_t kMetadataMax = 16;
constexpr size_t kMetadataNameBytesMax = 64, kMetadataValueBytesMax = 2048;  // 512 characters
constexpr double kIdBytesMax = 64;

constexpr const char* kInputSchema =
    R"({"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 4096, "items":
        {"type": "object", "properties": {"type": {"enum": ["message", "function_call",
        "function_call_output", "reasoning", null]}}}}]})";
constexpr const char* kToolsSchema =
    R"({"type": "array", "maxItems": 128, "items": {"type": "object", "required": ["type", "name"],
        "properties": {"type": {"const": "function"},
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
        "description": {"type": ["string", "null"]}, "parameters": {"type": ["object", "null"]},
        "strict": {"type": ["boolean", "null"]}}}})";
constexpr const char* kToolChoiceSchema =
    R"({"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object",
        "required": ["type", "name"], "properties": {"type": {"const": "function"},
        "name": {"type": "string"}}}]})";
constexpr const char* kTextSchema =
    R"({"type": "object", "properties": {"format": {"anyOf": [{"type": "null"},
        {"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["text", "json_object", "json_schema"]}, "name": {"type": "string"},
        "schema": {"type": "object"}, "strict": {"type": ["boolean", "null"]},
        "description": {"type": ["string", "null"]}}}]},
        "verbosity": {"type": ["string", "null"]}}})";
constexpr const char* kReasoningSchema =
    R"({"type": "object", "properties": {"effort": {"type": ["string", "null"]},
        "summary": {"type": ["string", "null"]}}})";
constexpr const char* kMetadataSchema =
    R"({"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string"}})";
constexpr const char* kIncludeSchema =
    R"({"type": "array", "items": {"enum": ["reasoning.encrypted_content"]}})";

constexpr ObjectMembers kTool = {.path = "tools[]",
                                 .is_open = true,
                                 .read = {"type", "name", "description", "parameters", "strict"}};
constexpr ObjectMembers kToolChoice = {
    .path = "tool_choice", .is_open = false, .read = {"type", "name"}};
constexpr ObjectMembers kText = {.path = "text", .is_open = false, .read = {"format", "verbosity"}};
constexpr ObjectMembers kFormat = {.path = "text.format",
                                   .is_open = false,
                                   .read = {"type", "name", "schema", "strict", "description"}};
// A summary that is not there is no loss: the response has the reasoning itself.
constexpr ObjectMembers kReasoning = {.path = "reasoning", .is_open = true, .read = {"effort"}};

// For fields that the chat does not have: parse_response_request() reads them.
void store_nothing(const FieldValue&, ApiRequest&) {}

void store_tools_of_response(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = list_of_tools(value);
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string path = str(value.name, "[", i, "]");
    expect_object(json[i], path);
    const std::string type = string_member(json[i], "type", path, SIZE_MAX);
    if (type != "function") {
      throw invalid_field(path + ".type",
                          str(path, ".type: expected \"function\", got ", quote(type, 40),
                              ": the server runs no tools of its own. Declare a function."));
    }
    check_members(json[i], path, kTool, value);
    ApiTool tool = function_of(json[i], path, "parameters");
    OrderedJson function = {{"name", tool.name}};
    for (const char* name : {"description", "parameters", "strict"}) {
      const auto member = json[i].find(name);
      if (member != json[i].end() && !member->is_null()) function[name] = *member;
    }
    add_tool(std::move(tool), {{"type", "function"}, {"function", std::move(function)}},
             path + ".name", request);
  }
}

void store_tool_choice_of_response(const FieldValue& value, ApiRequest& request) {
  if (!value.json.is_object()) return store_tool_choice(value, request);
  check_members(value.json, value.name, kToolChoice, value);
  const std::string type = string_member(value.json, "type", value.name, SIZE_MAX);
  if (type != "function") {
    throw invalid_field("tool_choice.type",
                        str("tool_choice.type: expected \"function\", got ", quote(type, 40), "."));
  }
  request.tool_choice = ToolChoice{ToolChoice::Kind::kNamed,
                                   string_member(value.json, "name", value.name, kNameBytesMax)};
}

void store_text(const FieldValue& value, ApiRequest& request) {
  check_members(value.json, value.name, kText, value);
  const auto verbosity = value.json.find("verbosity");
  if (verbosity != value.json.end() && !verbosity->is_null() && *verbosity != "medium") {
    value.ignored.add("text", "verbosity");
  }
  const auto format = value.json.find("format");
  if (format == value.json.end() || format->is_null()) return;
  const std::string path = "text.format";
  check_members(*format, path, kFormat, value);
  const std::string type = string_member(*format, "type", path, SIZE_MAX);
  if (type == "text") return;
  if (type == "json_object") return store_object_format(path, request);
  if (type != "json_schema") {
    throw invalid_field(
        path + ".type",
        str(path, ".type: expected text, json_object or json_schema, got ", quote(type, 40), "."));
  }
  check_name(string_member(*format, "name", path, kNameBytesMax), path + ".name");
  bool_member(*format, "strict", path);
  store_schema_format(object_member(*format, "schema", path), path + ".schema", request);
}

void store_reasoning(const FieldValue& value, ApiRequest& request) {
  check_members(value.json, value.name, kReasoning, value);
  const auto effort = value.json.find("effort");
  if (effort == value.json.end() || effort->is_null()) return;
  const ApiField& field = chat_field("reasoning_effort");
  check_field(field, *effort);
  field.store({*effort, field.name, value.rules, value.ignored}, request);
}

void store_metadata(const FieldValue& value, ApiRequest&) {
  expect_object(value.json, value.name);
  bool fits = value.json.size() <= kMetadataMax;
  for (const auto& [name, text] : value.json.items()) {
    fits = fits && name.size() <= kMetadataNameBytesMax && text.is_string() &&
           text.get_ref<const std::string&>().size() <= kMetadataValueBytesMax;
  }
  if (fits) return;
  throw invalid_field(
      value.name,
      str(value.name, ": expected at most ", kMetadataMax, " texts of at most ",
          kMetadataValueBytesMax, " bytes, with names of at most ", kMetadataNameBytesMax, "."));
}

void store_include(const FieldValue& value, ApiRequest&) {
  const OrderedJson& json = value.json;
  const bool is_list = json.is_array();
  for (size_t i = 0; is_list && i < json.size(); ++i) {
    if (json[i] == "reasoning.encrypted_content") {
      value.ignored.add("include", "reasoning.encrypted_content");
      continue;
    }
    const std::string path = str(value.name, "[", i, "]");
    throw invalid_field(path, str(path, ": expected nothing but reasoning.encrypted_content, got ",
                                  quote(json[i].dump(), 60), ", which is not supported."));
  }
  if (is_list) return;
  throw invalid_field(value.name,
                      str(value.name, ": expected a list, got ", kind_in_words(json), "."));
}

constexpr auto kOwnFields = std::to_array<ApiField>({
    {.name = "input",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .is_required = true,
     .schema = kInputSchema,
     .text = "A text, or items: messages (of text parts), function_call, function_call_output, "
             "reasoning. Other types, images and files are rejected.",
     .store = store_input},
    {.name = "instructions",
     .endpoints = kChat,
     .type = FieldType::kString,
     .range = {0, kInt31Max},
     .text = "A message of role system before all others; not taken over from "
             "previous_response_id.",
     .store = store_nothing},
    {.name = "previous_response_id",
     .endpoints = kChat,
     .type = FieldType::kString,
     .range = {1, kIdBytesMax},
     .text = "A stored response: its conversation comes before the input.",
     .store = store_nothing},
    {.name = "store",
     .endpoints = kChat,
     .type = FieldType::kBoolean,
     .text = "Keep the response, for previous_response_id and GET. Default: true where the server "
             "stores responses (--stored-responses), else false; true is an error there.",
     .store = store_nothing},
    {.name = "max_output_tokens",
     .endpoints = kChat,
     .type = FieldType::kInteger,
     .range = {1, kInt31Max},
     .text = "Most tokens to generate, reasoning among them. Default: the rest of the context.",
     .store = [](const FieldValue& v, ApiRequest& r) { r.max_tokens = v.json.get<int64_t>(); }},
    {.name = "tools",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .schema = kToolsSchema,
     .text = "Up to 128 functions that the model may call. Tools that a server would run "
             "(web_search, ...) are rejected.",
     .store = store_tools_of_response},
    {.name = "tool_choice",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .schema = kToolChoiceSchema,
     .text = "none, auto (default where there are tools), required, or one function by name.",
     .store = store_tool_choice_of_response},
    {.name = "text",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .schema = kTextSchema,
     .text = "format: text (default), json_object, or json_schema: the output is that. verbosity "
             "is ignored.",
     .store = store_text},
    {.name = "reasoning",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .schema = kReasoningSchema,
     .text = "effort: reasoning_effort of chats. Summaries are ignored, as the response has the "
             "reasoning itself.",
     .store = store_reasoning},
    {.name = "metadata",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .schema = kMetadataSchema,
     .text = "Up to 16 texts, which the response repeats.",
     .store = store_metadata},
    {.name = "include",
     .endpoints = kChat,
     .type = FieldType::kOther,
     .schema = kIncludeSchema,
     .text = "reasoning.encrypted_content is ignored, as reasoning is not encrypted; others are "
             "rejected.",
     .store = store_include},
});

// The rows of chats that mean the same here; those behind user are no fields of OpenAI's.
constexpr auto kChatFields = std::to_array<const char*>({"model",
                                                         "stream",
                                                         "temperature",
                                                         "top_p",
                                                         "parallel_tool_calls",
                                                         "user",
                                                         "thinking_token_budget",
                                                         "chat_template_kwargs",
                                                         "top_k",
                                                         "min_p",
                                                         "repetition_penalty",
                                                         "presence_penalty",
                                                         "frequency_penalty",
                                                         "seed",
                                                         "stop",
                                                         "priority",
                                                         "cache_salt",
                                                         "timeout",
                                                         "precision",
                                                         "slo"});

constexpr auto kNeutral = std::to_array<NeutralField>({
    {"background", kChat, "[false]", "Wait for the response, or stream it."},
    {"conversation", kChat, "[]", "Use previous_response_id."},
    {"prompt", kChat, "[]", "Send the text itself as input."},
    {"max_tool_calls", kChat, "[]", "The server runs no tools."},
    {"top_logprobs", kChat, "[0]", "Use /v1/chat/completions."},
    {"truncation", kChat, R"(["disabled"])", "Shorten the input yourself.", true},
    {"stream_options", kChat, R"([{"include_obfuscation": false}])", "Events are not padded.",
     true},
    {"service_tier", kChat, R"(["auto", "default"])", "Use priority.", true},
    {"context_management", kChat, "[]", "Shorten the input yourself."},
    {"moderation", kChat, "[]", "There is none."},
    {"messages", kChat, "[]", "Use input."},
    {"max_tokens", kChat, "[]", "Use max_output_tokens."},
    {"max_completion_tokens", kChat, "[]", "Use max_output_tokens."},
    {"response_format", kChat, "[]", "Use text.format."},
    {"reasoning_effort", kChat, "[]", "Use reasoning.effort."},
    {"safety_identifier", kChat, nullptr, "Not used."},
    {"prompt_cache_key", kChat, nullptr, "Not used: prefixes are found by their tokens."},
    {"prompt_cache_retention", kChat, nullptr, "Not used: memory alone decides."},
    {"prompt_cache_options", kChat, nullptr, "Not used: memory alone decides."},
});

constexpr auto kOperations = std::to_array<ApiOperation>({
    {.method = "post",
     .path = "/v1/responses",
     .summary = "Answer a conversation",
     .request = "ResponseRequest",
     .has_stream = true,
     .answer = "Response"},
    {.method = "get",
     .path = "/v1/responses/{response_id}",
     .summary = "A stored response",
     .answer = "Response"},
    {.method = "delete",
     .path = "/v1/responses/{response_id}",
     .summary = "Delete a stored response",
     .answer = "DeletedResponse"},
});

constexpr auto kAnswers = std::to_array<AnswerSchema>({
    {"Response", R"({"type": "object",
        "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
        "properties": {"id": {"type": "string"}, "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["completed", "incomplete", "failed"]},
        "model": {"type": "string"}, "store": {"type": "boolean"}, "background": {"const": false},
        "error": {"type": ["object", "null"]}, "incomplete_details": {"type": ["object", "null"]},
        "instructions": {"type": ["string", "null"]}, "max_tool_calls": {"type": "null"},
        "max_output_tokens": {"type": ["integer", "null"]},
        "parallel_tool_calls": {"type": "boolean"},
        "previous_response_id": {"type": ["string", "null"]}, "reasoning": {"type": "object"},
        "temperature": {"type": ["number", "null"]}, "top_p": {"type": ["number", "null"]},
        "text": {"type": "object"}, "tool_choice": {},
        "tools": {"type": "array", "items": {"type": "object"}},
        "truncation": {"type": "string"}, "user": {"type": ["string", "null"]},
        "metadata": {"type": ["object", "null"]},
        "output": {"type": "array", "items": {"type": "object",
          "required": ["id", "type", "status"], "properties": {"id": {"type": "string"},
          "type": {"enum": ["message", "reasoning", "function_call"]},
          "status": {"enum": ["completed", "incomplete"]}, "role": {"const": "assistant"},
          "summary": {"type": "array"},
          "content": {"type": "array", "items": {"type": "object", "required": ["type", "text"],
            "properties": {"type": {"enum": ["output_text", "reasoning_text"]},
            "text": {"type": "string"}, "annotations": {"type": "array"},
            "logprobs": {"type": "array"}}}},
          "call_id": {"type": "string"}, "name": {"type": "string"},
          "arguments": {"type": "string", "description": "A text of JSON."}}}},
        "usage": {"type": ["object", "null"], "properties": {
          "input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"},
          "total_tokens": {"type": "integer"}, "input_tokens_details": {"type": "object"},
          "output_tokens_details": {"type": "object"}}}}})"},
    {"DeletedResponse", R"({"type": "object", "required": ["id", "deleted"], "properties": {
        "id": {"type": "string"}, "object": {"type": "string"},
        "deleted": {"const": true}}})"},
});

std::vector<ApiField> make_fields() {
  std::vector<ApiField> fields(kOwnFields.begin(), kOwnFields.end());
  for (const char* name : kChatFields) fields.push_back(chat_field(name));
  return fields;
}

std::string text_or_empty(const OrderedJson& body, const char* name) {
  const auto member = body.find(name);
  return member != body.end() && member->is_string() ? member->get<std::string>() : std::string();
}

// The members of a response that repeat the request, with what holds where it says nothing.
OrderedJson echo_of(const OrderedJson& body, const ApiRequest& chat) {
  const auto given_or = [&](const char* name, OrderedJson otherwise) {
    const auto member = body.find(name);
    return member != body.end() && !member->is_null() ? *member : std::move(otherwise);
  };
  const OrderedJson effort = body.contains("reasoning") && body["reasoning"].is_object()
                                 ? body["reasoning"].value("effort", OrderedJson())
                                 : OrderedJson();
  OrderedJson text = given_or("text", OrderedJson::object());
  if (!text.contains("format") || text["format"].is_null()) text["format"] = {{"type", "text"}};
  return {{"instructions", given_or("instructions", nullptr)},
          {"max_output_tokens", given_or("max_output_tokens", nullptr)},
          {"max_tool_calls", nullptr},
          {"parallel_tool_calls", chat.allows_parallel_calls},
          {"previous_response_id", given_or("previous_response_id", nullptr)},
          {"reasoning", {{"effort", effort}, {"summary", nullptr}}},
          {"temperature", chat.sampling.temperature},
          {"text", std::move(text)},
          {"tool_choice", given_or("tool_choice", "auto")},
          {"tools", given_or("tools", OrderedJson::array())},
          {"top_p", chat.sampling.top_p},
          {"truncation", "disabled"},
          {"user", given_or("user", nullptr)},
          {"metadata", given_or("metadata", OrderedJson::object())}};
}

}  // namespace

FieldTables response_tables() {
  static const std::vector<ApiField> fields = make_fields();
  return {fields, kNeutral};
}

ApiDescription response_description() {
  return {.operations = kOperations,
          .schema = "ResponseRequest",
          .tables = response_tables(),
          .answers = kAnswers};
}

ResponseRequest parse_response_request(std::string_view body, const RequestRules& rules) {
  const OrderedJson json = parse_body(body);
  ResponseRequest request;
  request.chat.endpoint = ApiEndpoint::kChat;
  store_fields(json, response_tables(), rules, request.chat);
  request.instructions = text_or_empty(json, "instructions");
  request.previous_response_id = text_or_empty(json, "previous_response_id");
  const auto store = json.find("store");
  request.must_store = store != json.end() && *store == true;
  request.asks_to_store = store == json.end() || *store != false;
  request.echo = echo_of(json, request.chat);
  return request;
}

}  // namespace halley
