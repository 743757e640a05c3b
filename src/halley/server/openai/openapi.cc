#include "halley/server/openai/openapi.h"

#include <array>
#include <cmath>
#include <string_view>

#include "halley/base/str.h"
#include "halley/server/openai/field_table.h"

namespace halley {
namespace {

constexpr auto kOperations = std::to_array<ApiOperation>({
    {.method = "post",
     .path = "/v1/completions",
     .summary = "Continue prompts",
     .request = "CompletionRequest",
     .has_stream = true,
     .answer = "Completion"},
    {.method = "post",
     .path = "/v1/chat/completions",
     .summary = "Answer a conversation",
     .request = "ChatCompletionRequest",
     .has_stream = true,
     .answer = "ChatCompletion"},
    {.method = "get",
     .path = "/v1/models",
     .summary = "The models that are served",
     .answer = "ModelList"},
    {.method = "post",
     .path = "/tokenize",
     .summary = "Text or a conversation to token ids",
     .request = "TokenizeRequest",
     .answer = "Tokens"},
    {.method = "post",
     .path = "/detokenize",
     .summary = "Token ids to text",
     .request = "DetokenizeRequest",
     .answer = "PromptText"},
    {.method = "post",
     .path = "/apply-template",
     .summary = "A conversation to the text that the model continues",
     .request = "TokenizeRequest",
     .answer = "PromptText"},
    {.method = "post",
     .path = "/v1/load_lora_adapter",
     .summary = "Loads a LoRA adapter; with --lora-folder",
     .request = "LoadAdapter",
     .answer = "AdapterChange"},
    {.method = "post",
     .path = "/v1/unload_lora_adapter",
     .summary = "Unloads a LoRA adapter; with --lora-folder",
     .request = "UnloadAdapter",
     .answer = "AdapterChange"},
    {.method = "get",
     .path = "/props",
     .summary = "Defaults of requests, the context and the chat template",
     .answer = "Props"},
    {.method = "get",
     .path = "/slots",
     .summary = "The sequences that can run, and how many do",
     .answer = "Slots"},
    {.method = "get",
     .path = "/load",
     .summary = "How many sequences run or wait",
     .answer = "Load"},
    {.method = "get",
     .path = "/server_info",
     .summary = "The settings that hold",
     .answer = "ServerInfo"},
    {.method = "get",
     .path = "/health",
     .summary = "200 while the process can serve, else 503",
     .is_open = true,
     .answer = "Status"},
    {.method = "get",
     .path = "/ready",
     .summary = "200 where new requests are taken, else 503",
     .is_open = true,
     .answer = "Status"},
    {.method = "get", .path = "/version", .summary = "The program's version", .answer = "Version"},
    {.method = "get", .path = "/openapi.json", .summary = "This document", .answer = "Description"},
    {.method = "get", .path = "/metrics", .summary = "Metrics in Prometheus' text format"},
    {.method = "get",
     .path = "/precision",
     .summary = "The precision of steps and its last switches",
     .answer = "PrecisionState"},
});

void add_number_range(const ApiField& field, OrderedJson& schema) {
  // Not all programs read JSON integers near 2^63 exactly.
  if (std::fabs(field.range.max) > 1e18) return;
  const auto number = [&](double value) {
    return field.type == FieldType::kInteger ? OrderedJson(static_cast<int64_t>(value))
                                             : OrderedJson(value);
  };
  schema[field.range.excludes_min ? "exclusiveMinimum" : "minimum"] = number(field.range.min);
  schema["maximum"] = number(field.range.max);
}

OrderedJson schema_of(const ApiField& field) {
  OrderedJson schema = OrderedJson::object();
  switch (field.schema == nullptr ? field.type : FieldType::kOther) {
    case FieldType::kBoolean:
      schema["type"] = {"boolean", "null"};
      break;
    case FieldType::kInteger:
      schema["type"] = {"integer", "null"};
      add_number_range(field, schema);
      break;
    case FieldType::kNumber:
      schema["type"] = {"number", "null"};
      add_number_range(field, schema);
      break;
    case FieldType::kString:
      schema["type"] = {"string", "null"};
      // Ranges are bytes and lengths characters, each of one byte or more.
      if (field.range.min > 0) schema["minLength"] = 1;
      schema["maxLength"] = static_cast<int64_t>(field.range.max);
      break;
    case FieldType::kOther:
      schema["anyOf"] = {OrderedJson::parse(field.schema), {{"type", "null"}}};
      break;
  }
  if (field.default_json != nullptr) schema["default"] = OrderedJson::parse(field.default_json);
  schema["description"] = field.text;
  return schema;
}

OrderedJson schema_of(const NeutralField& field) {
  OrderedJson schema = OrderedJson::object();
  if (field.accepted_json != nullptr && !field.is_ignorable) {
    OrderedJson values = OrderedJson::parse(field.accepted_json);
    values.push_back(nullptr);
    schema["enum"] = std::move(values);
  }
  schema["description"] =
      str(field.is_ignorable ? "Ignored. " : "Not supported beyond this. ", field.text);
  return schema;
}

OrderedJson request_schema(const FieldTables& tables, ApiEndpoint endpoint) {
  OrderedJson properties = OrderedJson::object();
  OrderedJson required = OrderedJson::array();
  for (const ApiField& field : tables.fields) {
    if ((field.endpoints & bit_of(endpoint)) == 0) continue;
    properties[field.name] = schema_of(field);
    if (field.is_required) required.push_back(field.name);
  }
  for (const NeutralField& field : tables.neutral) {
    if ((field.endpoints & bit_of(endpoint)) != 0) properties[field.name] = schema_of(field);
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

OrderedJson request_schema(ApiEndpoint endpoint) {
  OrderedJson schema = request_schema({api_fields(), neutral_fields()}, endpoint);
  // /tokenize takes a prompt or messages, so that the table requires neither.
  if (endpoint == ApiEndpoint::kCompletions) schema["required"].push_back("prompt");
  if (endpoint == ApiEndpoint::kChat) schema["required"].push_back("messages");
  return schema;
}

OrderedJson error_schema() {
  const OrderedJson text = {{"type", {"string", "null"}}};
  return {{"type", "object"},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"properties",
               {{"message", {{"type", "string"}}},
                {"type", {{"type", "string"}}},
                {"param", text},
                {"code", text}}}}}}}};
}

OrderedJson error_answer(const char* what) {
  return {
      {"description", what},
      {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
}

// The name between the braces of a path.
OrderedJson path_parameter(std::string_view path) {
  const size_t begin = path.find('{') + 1;
  return {{"name", path.substr(begin, path.find('}') - begin)},
          {"in", "path"},
          {"required", true},
          {"schema", {{"type", "string"}, {"pattern", "^[A-Za-z0-9_-]{1,128}$"}}}};
}

OrderedJson operation_json(const ApiOperation& operation) {
  OrderedJson out = {{"summary", operation.summary}};
  if (std::string_view(operation.path).find('{') != std::string_view::npos) {
    out["parameters"].push_back(path_parameter(operation.path));
    out["responses"]["404"] = error_answer("There is none of that name");
  }
  OrderedJson content = OrderedJson::object();
  if (operation.answer != nullptr) {
    content["application/json"] = {
        {"schema", {{"$ref", str("#/components/schemas/", operation.answer)}}}};
  } else {
    content["text/plain"] = {{"schema", {{"type", "string"}}}};
  }
  if (operation.has_stream) content["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  out["responses"]["200"] = {{"description", "The answer"}, {"content", std::move(content)}};
  if (operation.request != nullptr) {
    out["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/json",
           {{"schema", {{"$ref", str("#/components/schemas/", operation.request)}}}}}}}};
    out["responses"]["400"] = error_answer("The request is wrong; param names the field");
    out["responses"]["404"] = error_answer("No such model");
    out["responses"]["503"] = error_answer("Overloaded, or shutting down: see Retry-After");
    out["responses"]["504"] = error_answer("The request's time has passed");
  }
  if (operation.is_open) {
    out["security"] = OrderedJson::array();
  } else {
    out["responses"]["401"] = error_answer("A key is needed");
  }
  return out;
}

}  // namespace

OrderedJson make_openapi(const std::string& version, std::span<const ApiDescription> others) {
  OrderedJson paths = OrderedJson::object();
  for (const ApiOperation& operation : kOperations) {
    paths[operation.path][operation.method] = operation_json(operation);
  }
  OrderedJson schemas = {{"CompletionRequest", request_schema(ApiEndpoint::kCompletions)},
                         {"ChatCompletionRequest", request_schema(ApiEndpoint::kChat)},
                         {"TokenizeRequest", request_schema(ApiEndpoint::kTokenize)},
                         {"DetokenizeRequest", request_schema(ApiEndpoint::kDetokenize)},
                         {"Error", error_schema()}};
  const auto add_answers = [&](std::span<const AnswerSchema> answers) {
    for (const AnswerSchema& answer : answers) {
      schemas[answer.name] = OrderedJson::parse(answer.json);
    }
  };
  add_answers(openai_answers());
  for (const ApiDescription& api : others) {
    for (const ApiOperation& operation : api.operations) {
      paths[operation.path][operation.method] = operation_json(operation);
    }
    schemas[api.schema] = request_schema(api.tables, api.endpoint);
    add_answers(api.answers);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Halley"}, {"version", version}}},
          {"paths", std::move(paths)},
          {"security",
           {{{"bearer", OrderedJson::array()}},
            {{"key", OrderedJson::array()}},
            OrderedJson::object()}},
          {"components",
           {{"schemas", std::move(schemas)},
            {"securitySchemes",
             {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
              {"key", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}}}}}};
}

}  // namespace halley
