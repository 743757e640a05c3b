// Parses request fields that are more than a number or a string.
#pragma once

#include "halley/server/openai/field_table.h"

namespace halley {

void store_prompt(const FieldValue& value, ApiRequest& request);
void store_messages(const FieldValue& value, ApiRequest& request);
void store_dry_sequence_breakers(const FieldValue& value, ApiRequest& request);
void store_stop(const FieldValue& value, ApiRequest& request);
void store_stop_token_ids(const FieldValue& value, ApiRequest& request);
void store_bad_words(const FieldValue& value, ApiRequest& request);
void store_allowed_token_ids(const FieldValue& value, ApiRequest& request);
void store_truncate_prompt_tokens(const FieldValue& value, ApiRequest& request);
void store_logit_bias(const FieldValue& value, ApiRequest& request);
void store_stream_options(const FieldValue& value, ApiRequest& request);
void store_precision(const FieldValue& value, ApiRequest& request);
void store_slo(const FieldValue& value, ApiRequest& request);
void store_chat_template_kwargs(const FieldValue& value, ApiRequest& request);
void store_reasoning_effort(const FieldValue& value, ApiRequest& request);
void store_thinking_token_budget(const FieldValue& value, ApiRequest& request);
void store_tools(const FieldValue& value, ApiRequest& request);
void store_tool_choice(const FieldValue& value, ApiRequest& request);
/// Steps of store_tools(), for other APIs: the list, at most as long as it may be; the function at
/// `path`, whose JSON schema is the member `parameters_name`; the tool with what the chat template
/// sees of it. They throw ApiError.
const OrderedJson& list_of_tools(const FieldValue& value);
ApiTool function_of(const OrderedJson& function, const std::string& path,
                    const char* parameters_name);
void add_tool(ApiTool tool, OrderedJson json, const std::string& name_path, ApiRequest& request);
void store_tokens(const FieldValue& value, ApiRequest& request);
/// A row of the table of sampling parameters (sampling/base/sampling_fields.h).
void store_sampling_parameter(const FieldValue& value, ApiRequest& request);

/// "a string", "an integer", "null": the kind of a value, for error messages.
std::string kind_in_words(const OrderedJson& value);

/// Throws ApiError if `value`, at `path`, is no object.
void expect_object(const OrderedJson& value, const std::string& path);
/// A member that must be a string of at most `num_bytes_max` bytes.
std::string string_member(const OrderedJson& object, const char* name, const std::string& path,
                          size_t num_bytes_max);
/// A member that must be an object.
const OrderedJson& object_member(const OrderedJson& object, const char* name,
                                 const std::string& path);
/// A member that must be true or false; false where it is null or not there.
bool bool_member(const OrderedJson& object, const char* name, const std::string& path);

/// The arguments of a call, a member with a text of JSON, as an object; an empty one where there is
/// no text.
OrderedJson arguments_member(const OrderedJson& call, const std::string& path);

/// The longest name of a tool or a format.
constexpr size_t kNameBytesMax = 64;
/// Throws ApiError if the name of a tool or a format, at `path`, is none.
void check_name(const std::string& name, const std::string& path);

}  // namespace halley
