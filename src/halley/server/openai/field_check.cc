#include <cmath>
#include <string_view>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_table.h"
#include "halley/server/openai/field_values.h"

namespace halley {
namespace {

constexpr double kUnboundedMax = 2147483647;  // the table's value for "limited by memory only"

const char* type_in_words(FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return "true or false";
    case FieldType::kInteger:
      return "an integer";
    case FieldType::kNumber:
      return "a number";
    case FieldType::kString:
      return "a string";
    case FieldType::kOther:
      break;
  }
  return "";
}

bool has_type(FieldType type, const OrderedJson& value) {
  switch (type) {
    case FieldType::kBoolean:
      return value.is_boolean();
    case FieldType::kInteger:
      return value.is_number_integer();
    case FieldType::kNumber:
      return value.is_number();
    case FieldType::kString:
      return value.is_string();
    case FieldType::kOther:
      break;
  }
  return true;
}

bool is_in_range(const FieldRange& range, double value) {
  return value <= range.max && (range.excludes_min ? value > range.min : value >= range.min);
}

bool fits(const ApiField& field, const OrderedJson& value) {
  if (field.type == FieldType::kString) {
    return is_in_range(field.range,
                       static_cast<double>(value.get_ref<const std::string&>().size()));
  }
  // get<int64_t>() would not return 2^63 and above correctly.
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return false;
  return is_in_range(field.range, value.get<double>());
}

std::string value_in_words(const OrderedJson& value) {
  if (value.is_string()) return str("one of ", value.get_ref<const std::string&>().size());
  return value.dump();
}

// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

const char* type_name(FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return "boolean";
    case FieldType::kInteger:
      return "integer";
    case FieldType::kNumber:
      return "number";
    case FieldType::kString:
      return "string";
    case FieldType::kOther:
      break;
  }
  return "object or list";
}

}  // namespace

std::string endpoints_in_words(uint8_t endpoints) {
  std::string text;
  const auto add = [&](ApiEndpoint endpoint, const char* name) {
    if ((endpoints & bit_of(endpoint)) != 0) text += str(text.empty() ? "" : ", ", name);
  };
  add(ApiEndpoint::kCompletions, "completions");
  add(ApiEndpoint::kChat, "chat");
  add(ApiEndpoint::kTokenize, "tokenize");
  add(ApiEndpoint::kDetokenize, "detokenize");
  add(ApiEndpoint::kEmbeddings, "embeddings");
  add(ApiEndpoint::kRerank, "rerank");
  add(ApiEndpoint::kScore, "score");
  return text;
}

std::string kind_in_words(const OrderedJson& value) {
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return str("the number ", value.dump());
  if (value.is_null()) return "null";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return str(value.is_array() || value.is_object() ? "an " : "a ", value.type_name());
}

std::string range_in_words(const ApiField& field) {
  const FieldRange& range = field.range;
  if (field.type == FieldType::kBoolean || field.type == FieldType::kOther) return "";
  if (std::fabs(range.max) > 1e18) return field.type == FieldType::kInteger ? "64 bits" : "";
  const char* unit = field.type == FieldType::kString ? " bytes" : "";
  if (range.max >= kUnboundedMax) return str("at least ", range.min);
  if (range.excludes_min) return str("above ", range.min, " and at most ", range.max, unit);
  return str(range.min, " to ", range.max, unit);
}

void check_field(const ApiField& field, const OrderedJson& value) {
  if (!has_type(field.type, value)) {
    throw invalid_field(field.name, str(field.name, ": expected ", type_in_words(field.type),
                                        ", got ", kind_in_words(value), "."));
  }
  if (field.type == FieldType::kBoolean || field.type == FieldType::kOther) return;
  if (fits(field, value)) return;
  throw invalid_field(field.name, str(field.name, ": expected ", range_in_words(field), ", got ",
                                      value_in_words(value), "."));
}

std::string fields_in_markdown(const FieldTables& tables, bool has_endpoints) {
  const auto endpoints_cell = [&](const std::string& text) {
    return has_endpoints ? str(text, " | ") : std::string();
  };
  const std::string rule = has_endpoints ? "|---" : "";
  std::string text = str("| field | ", endpoints_cell("endpoints"),
                         "type | range | default | meaning |\n", rule, "|---|---|---|---|---|\n");
  for (const ApiField& field : tables.fields) {
    text += str("| `", field.name, "` | ", endpoints_cell(endpoints_in_words(field.endpoints)),
                type_name(field.type), " | ", range_in_words(field), " | ",
                field.is_required    ? "required"
                : field.default_json ? field.default_json
                                     : "",
                " | ", cell(field.text), " |\n");
  }
  text += str("\n| field | ", endpoints_cell("endpoints"), "accepted | instead |\n", rule,
              "|---|---|---|\n");
  for (const NeutralField& field : tables.neutral) {
    std::string accepted = "any value";
    if (field.accepted_json != nullptr) {
      accepted = "null";
      for (const auto& value : OrderedJson::parse(field.accepted_json)) {
        accepted += str(", `", value.dump(), "`");
      }
    }
    if (field.is_ignorable) accepted += "; others are ignored";
    text += str("| `", field.name, "` | ", endpoints_cell(endpoints_in_words(field.endpoints)),
                cell(accepted), " | ", cell(field.text), " |\n");
  }
  return text;
}

}  // namespace halley
