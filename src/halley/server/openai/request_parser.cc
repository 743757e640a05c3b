#include "halley/server/openai/request_parser.h"

#include <string>
#include <string_view>
#include <vector>

#include "halley/base/nearest_name.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_table.h"
#include "halley/server/openai/field_values.h"

namespace halley {
namespace {

constexpr JsonLimits kJsonLimits = {.depth_max = 64, .num_values_max = 4'000'000};
constexpr int64_t kSequencesMax = 1024;

bool has_endpoint(uint8_t endpoints, ApiEndpoint endpoint) {
  return (endpoints & bit_of(endpoint)) != 0;
}

void check_neutral(const NeutralField& field, const OrderedJson& value, IgnoredMembers& ignored) {
  if (field.accepted_json == nullptr) return;
  std::string accepted;
  for (const auto& candidate : OrderedJson::parse(field.accepted_json)) {
    if (candidate == value) return;
    accepted += str(accepted.empty() ? " or " : ", ", candidate.dump());
  }
  if (field.is_ignorable) {
    ignored.add({}, field.name);
    return;
  }
  throw ApiError(
      str(field.name, ": expected nothing", accepted, ": it is not supported. ", field.text),
      {.param = field.name, .code = "unsupported_parameter"});
}

// " Did you mean 'max_tokens'?", or what else may help.
std::string advice_for(const std::string& key, const FieldTables& tables, ApiEndpoint endpoint) {
  std::vector<std::string_view> names;
  for (const ApiField& field : tables.fields) {
    if (has_endpoint(field.endpoints, endpoint)) {
      names.emplace_back(field.name);
    } else if (key == field.name) {
      return str(" It is a field of ", endpoints_in_words(field.endpoints), ".");
    }
  }
  const std::string_view nearest = nearest_name(key, names);
  if (nearest.empty()) return " Leave it out, or check its name.";
  return str(" Did you mean '", nearest, "'?");
}

void check_unknown_field(const std::string& key, const OrderedJson& value,
                         const FieldTables& tables, const RequestRules& rules,
                         ApiRequest& request) {
  const ApiEndpoint endpoint = request.endpoint;
  for (const ApiField& field : tables.fields) {
    if (key == field.name && has_endpoint(field.endpoints, endpoint)) return;
  }
  if (value.is_null()) return;
  for (const NeutralField& field : tables.neutral) {
    if (key != field.name || !has_endpoint(field.endpoints, endpoint)) continue;
    check_neutral(field, value, request.ignored);
    return;
  }
  if (!rules.ignores_unknown_fields) {
    throw ApiError(str("body: expected the fields of openapi.json, got ", quote(key), ".",
                       advice_for(key, tables, endpoint)),
                   {.param = quote(key), .code = "unknown_parameter"});
  }
  request.ignored.add({}, key);
}

void check_lengths(const ApiRequest& request) {
  const SamplingParams& sampling = request.sampling;
  if (request.max_tokens == 0 && (!request.has_echo || request.is_stream)) {
    throw invalid_field("max_tokens",
                        "max_tokens: expected at least 1, got 0. 0 is for echo without stream.");
  }
  if (request.max_tokens && sampling.min_tokens > *request.max_tokens) {
    throw invalid_field("min_tokens",
                        str("min_tokens: expected at most max_tokens (", *request.max_tokens,
                            "), got ", sampling.min_tokens, "."));
  }
  if (request.num_sequences() > kSequencesMax) {
    throw invalid_field("n", str("n: expected n times the number of prompts to be at most ",
                                 kSequencesMax, ", got ", request.num_sequences(), "."));
  }
}

// Lists of tokens hold for outputs that nothing else constrains, so that some token is left.
void check_token_lists(const ApiRequest& request) {
  const char* name = !request.bad_words.empty()           ? "bad_words"
                     : !request.allowed_token_ids.empty() ? "allowed_token_ids"
                                                          : nullptr;
  if (name == nullptr) return;
  const char* other = nullptr;
  if (!request.bad_words.empty() && !request.allowed_token_ids.empty()) other = "allowed_token_ids";
  if (request.output_format.kind != OutputFormat::Kind::kText) {
    other = request.output_format.field.c_str();
  }
  if (request.tool_choice && (request.tool_choice->kind == ToolChoice::Kind::kRequired ||
                              request.tool_choice->kind == ToolChoice::Kind::kNamed)) {
    other = "tool_choice";
  }
  if (request.thinking_token_budget) other = "thinking_token_budget";
  if (other == nullptr) return;
  throw invalid_field(name, str(name, ": expected nothing where ", other,
                                " constrains the output too. Send one of them."));
}

void check_prompt_logprobs(const ApiRequest& request) {
  if (!request.num_prompt_logprobs || !(request.is_stream || request.has_echo)) return;
  throw invalid_field("prompt_logprobs",
                      str("prompt_logprobs: expected nothing with ",
                          request.is_stream ? "stream." : "echo, which has them with logprobs."));
}

void check_stream(const OrderedJson& body, const ApiRequest& request) {
  const auto options = body.find("stream_options");
  if (!request.is_stream && options != body.end() && !options->is_null()) {
    throw invalid_field("stream_options",
                        "stream_options: expected stream to be true with it, got false.");
  }
}

// Sets the default of a missing tool_choice.
void settle_tool_choice(ApiRequest& request) {
  using Kind = ToolChoice::Kind;
  if (!request.tool_choice) {
    request.tool_choice = ToolChoice{request.tools.empty() ? Kind::kNone : Kind::kAuto};
  }
  const ToolChoice& choice = *request.tool_choice;
  if (choice.kind != Kind::kNone && request.tools.empty()) {
    // "auto" without tools has no effect.
    if (choice.kind != Kind::kAuto) {
      throw invalid_field("tool_choice", "tool_choice: expected tools with it, got none.");
    }
    request.tool_choice = ToolChoice{Kind::kNone};
    return;
  }
  if (choice.kind != Kind::kNamed) return;
  for (const ApiTool& tool : request.tools) {
    if (tool.name == choice.name) return;
  }
  throw invalid_field("tool_choice", str("tool_choice: expected the name of one of the tools, got ",
                                         quote(choice.name), "."));
}

void check_chat(ApiRequest& request) {
  if (request.num_top_logprobs > 0 && !request.has_chat_logprobs) {
    throw invalid_field("top_logprobs", "top_logprobs: expected logprobs to be true with it.");
  }
  settle_tool_choice(request);
  const bool is_forced = request.tool_choice->kind == ToolChoice::Kind::kRequired ||
                         request.tool_choice->kind == ToolChoice::Kind::kNamed;
  const OutputFormat& format = request.output_format;
  if (is_forced && format.kind != OutputFormat::Kind::kText) {
    throw invalid_field(format.field,
                        str(format.field, ": expected none where tool_choice demands a call."));
  }
}

void check_template(ApiRequest& request, bool states_generation_prompt) {
  if (!request.continues_final_message) return;
  if (request.adds_generation_prompt && states_generation_prompt) {
    throw invalid_field("continue_final_message",
                        "continue_final_message: expected add_generation_prompt to be false with "
                        "it, got true.");
  }
  request.adds_generation_prompt = false;
  if (request.messages.empty() || request.messages.back().contains("tool_calls")) {
    throw invalid_field("continue_final_message",
                        "continue_final_message: expected a last message with text, got none.");
  }
}

void check_together(const OrderedJson& body, ApiRequest& request) {
  switch (request.endpoint) {
    case ApiEndpoint::kCompletions:
      require_field(!request.prompts.empty(), "prompt");
      break;
    case ApiEndpoint::kChat:
      require_field(!request.messages.empty(), "messages");
      check_chat(request);
      break;
    case ApiEndpoint::kTokenize:
      if (request.prompts.empty() == request.messages.empty() || request.prompts.size() > 1) {
        throw invalid_field("prompt", "prompt: expected one prompt, or messages instead of it.");
      }
      break;
    case ApiEndpoint::kDetokenize:
    case ApiEndpoint::kEmbeddings:
    case ApiEndpoint::kRerank:
    case ApiEndpoint::kScore:
      break;
  }
  const auto prompt_flag = body.find("add_generation_prompt");
  check_template(request, prompt_flag != body.end() && !prompt_flag->is_null());
  check_lengths(request);
  check_token_lists(request);
  check_prompt_logprobs(request);
  check_stream(body, request);
}

}  // namespace

OrderedJson parse_body(std::string_view body) {
  try {
    OrderedJson json = parse_ordered_json(body, "body", kJsonLimits);
    if (json.is_object()) return json;
    throw invalid_field("", str("body: expected a JSON object, got ", kind_in_words(json), "."));
  } catch (const ApiError&) {
    throw;
  } catch (const InputError& error) {
    throw invalid_field("", error.what());
  }
}

void require_field(bool is_given, const char* name) {
  if (is_given) return;
  throw ApiError(str(name, ": expected a value, got nothing. The field is required."),
                 {.param = name, .code = "missing_required_parameter"});
}

void store_fields(const OrderedJson& body, const FieldTables& tables, const RequestRules& rules,
                  ApiRequest& request) {
  for (const auto& [key, value] : body.items()) {
    check_unknown_field(key, value, tables, rules, request);
  }
  request.sampling = rules.sampling;
  for (const ApiField& field : tables.fields) {
    if (!has_endpoint(field.endpoints, request.endpoint)) continue;
    const auto value = body.find(field.name);
    if (value == body.end() || value->is_null()) {
      require_field(!field.is_required, field.name);
      continue;
    }
    check_field(field, *value);
    field.store({*value, field.name, rules, request.ignored}, request);
  }
  check_together(body, request);
}

ApiRequest parse_request(std::string_view body, ApiEndpoint endpoint, const RequestRules& rules) {
  ApiRequest request;
  request.endpoint = endpoint;
  store_fields(parse_body(body), {api_fields(), neutral_fields()}, rules, request);
  return request;
}

}  // namespace halley
