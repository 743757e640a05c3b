// The table of request fields: name, type, range, default, documentation and how it is stored.
// Parsing, openapi.json and docs/serving.md are made from it. Its rows of sampling parameters come
// from the table of sampling/base/sampling_fields.h.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "halley/json/json.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/request_parser.h"

namespace halley {

enum class FieldType : uint8_t { kBoolean, kInteger, kNumber, kString, kOther };

/// The range of a number, or of a string's bytes.
struct FieldRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool excludes_min = false;
};

/// One value on its way from JSON into a request.
struct FieldValue {
  const OrderedJson& json;  // not null; of the field's type and in its range
  const char* name;
  const RequestRules& rules;
  IgnoredMembers& ignored;  // takes what the field has and the server does not read
};

struct ApiField {
  const char* name;
  uint8_t endpoints;  // bits of ApiEndpoint
  FieldType type;
  FieldRange range = {};
  const char* default_json = nullptr;  // for people and openapi.json; null: none
  bool is_required = false;
  const char* schema = nullptr;  // where type and range do not say all: its JSON schema
  const char* text;
  /// Throws ApiError.
  void (*store)(const FieldValue& value, ApiRequest& request);
};

/// A field that other servers have and this one does not, or whose value changes nothing here. It
/// is accepted where it asks for nothing.
struct NeutralField {
  const char* name;
  uint8_t endpoints;
  const char* accepted_json;  // an array of the values that ask for nothing; null: any value does
  const char* text;
  /// Other values are accepted too, but told as ignored (IgnoredMembers): the output stays a right
  /// answer to the request.
  bool is_ignorable = false;
};

constexpr uint8_t bit_of(ApiEndpoint endpoint) { return static_cast<uint8_t>(endpoint); }

/// The tables of the OpenAI routes.
std::span<const ApiField> api_fields();
std::span<const NeutralField> neutral_fields();

/// The fields of one API's bodies.
struct FieldTables {
  std::span<const ApiField> fields;
  std::span<const NeutralField> neutral;
};

/// The row of api_fields() for chats with this name, for the tables of other APIs. The name must be
/// there.
const ApiField& chat_field(std::string_view name);

/// Throws ApiError where the value has the wrong type or is out of range.
void check_field(const ApiField& field, const OrderedJson& value);

/// "completions, chat".
std::string endpoints_in_words(uint8_t endpoints);

/// "0 to 2", "above 0 and at most 1", "at least 1"; empty: any.
std::string range_in_words(const ApiField& field);

/// The tables of the manual, in Markdown: one of the fields, one of the neutral ones; with a column
/// of the endpoints where the API has several.
std::string fields_in_markdown(const FieldTables& tables, bool has_endpoints);

}  // namespace halley
