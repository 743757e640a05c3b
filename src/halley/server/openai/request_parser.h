// Parses the body of a request into an ApiRequest, by the table of fields.
#pragma once

#include <cstdint>
#include <string_view>

#include "halley/json/json.h"
#include "halley/server/openai/api_request.h"

namespace halley {

struct FieldTables;

/// The server's own settings for requests.
struct RequestRules {
  SamplingParams sampling = {};         // defaults, from the model's generation_config.json
  int64_t vocab_size = 0;               // token ids must be below
  bool ignores_unknown_fields = false;  // else 400
  bool template_reads_effort = false;   // the chat template has the variable reasoning_effort
  bool template_reads_enable_thinking = false;  // and this one
  bool has_reasoning_parser = false;            // the model has a reasoning dialect
};

/// `body` is untrusted. A null field counts as missing. What is accepted and changes nothing is in
/// `ignored` of the result. Throws ApiError 400 with
/// the field's name in `param`.
ApiRequest parse_request(std::string_view body, ApiEndpoint endpoint, const RequestRules& rules);

/// The two steps of parse_request(), for APIs with tables of their own (field_table.h): the body as
/// an object, and its fields stored in `request` by its endpoint. Both throw as parse_request().
OrderedJson parse_body(std::string_view body);
void store_fields(const OrderedJson& body, const FieldTables& tables, const RequestRules& rules,
                  ApiRequest& request);

/// Throws ApiError 400 "missing_required_parameter" unless `is_given`.
void require_field(bool is_given, const char* name);

}  // namespace halley
