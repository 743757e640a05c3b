#include "halley/server/openai/member_table.h"

#include <algorithm>
#include <vector>

#include "halley/base/nearest_name.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"

namespace halley {
namespace {

constexpr const char* kTextAlone = "The model reads text alone.";
constexpr const char* kNoE2el = "Use ttft_ms and tpot_ms; timeout ends a request.";

constexpr auto kObjects = std::to_array<ObjectMembers>({
    {.kind = ObjectKind::kMessage,
     .path = "messages[]",
     .is_open = true,
     .read = {"role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content",
              "reasoning", "refusal"},
     .neutral = {"annotations", "parsed"},
     .rejected = {{{"function_call", "Use tool_calls, and role \"tool\" for results."},
                   {"images", kTextAlone},
                   {"audio", kTextAlone},
                   {"prefix", "Use continue_final_message."}}}},
    {.kind = ObjectKind::kPart,
     .path = "messages[].content[]",
     .is_open = true,
     .read = {"type", "text", "refusal"},
     .neutral = {"annotations"}},
    {.kind = ObjectKind::kCall,
     .path = "messages[].tool_calls[]",
     .is_open = true,
     .read = {"id", "type", "function"},
     .neutral = {"index"}},
    {.kind = ObjectKind::kCallFunction,
     .path = "messages[].tool_calls[].function",
     .is_open = true,
     .read = {"name", "arguments"},
     .neutral = {"parsed_arguments"}},
    {.kind = ObjectKind::kTool, .path = "tools[]", .is_open = true, .read = {"type", "function"}},
    {.kind = ObjectKind::kToolFunction,
     .path = "tools[].function",
     .is_open = true,
     .read = {"name", "description", "parameters", "strict"}},
    {.kind = ObjectKind::kToolChoice,
     .path = "tool_choice",
     .is_open = false,
     .read = {"type", "function"}},
    {.kind = ObjectKind::kToolChoiceFunction,
     .path = "tool_choice.function",
     .is_open = false,
     .read = {"name"}},
    {.kind = ObjectKind::kResponseFormat,
     .path = "response_format",
     .is_open = false,
     .read = {"type", "json_schema", "schema"}},
    {.kind = ObjectKind::kJsonSchema,
     .path = "response_format.json_schema",
     .is_open = false,
     .read = {"name", "description", "schema", "strict"}},
    {.kind = ObjectKind::kStructuredOutputs,
     .path = "structured_outputs",
     .is_open = false,
     .read = {"json", "regex", "choice", "grammar", "json_object"},
     .neutral = {"disable_fallback"},  // there is one matcher
     .rejected = {{{"structural_tag", "Use tools."},
                   {"whitespace_pattern", "Write a grammar."},
                   {"disable_any_whitespace", "Write a grammar."},
                   {"disable_additional_properties", "Say it in the schema."}}}},
    {.kind = ObjectKind::kStreamOptions,
     .path = "stream_options",
     .is_open = false,
     .read = {"include_usage", "continuous_usage_stats", "include_obfuscation"}},
    {.kind = ObjectKind::kSlo,
     .path = "slo",
     .is_open = false,
     .read = {"ttft_ms", "tpot_ms"},
     .rejected = {{{"ttft", "Use ttft_ms, in milliseconds."},
                   {"tpot", "Use tpot_ms, in milliseconds."},
                   {"e2el", kNoE2el},
                   {"e2el_ms", kNoE2el}}}},
});

const ObjectMembers& row_of(ObjectKind kind) { return kObjects[static_cast<size_t>(kind)]; }

template <size_t kSize>
bool has_name(const std::array<const char*, kSize>& names, std::string_view key) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return name != nullptr && key == name; });
}

const RejectedMember* find_rejected(const ObjectMembers& row, std::string_view key) {
  for (const RejectedMember& member : row.rejected) {
    if (member.name != nullptr && key == member.name) return &member;
  }
  return nullptr;
}

// Values that ask for nothing.
bool is_nothing(const OrderedJson& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty();  // null, and an array or object without members
}

std::string suggestion_for(const ObjectMembers& row, std::string_view key) {
  std::vector<std::string_view> names;
  for (const char* name : row.read) {
    if (name != nullptr) names.emplace_back(name);
  }
  const std::string_view nearest = nearest_name(key, names);
  return nearest.empty() ? " Leave it out." : str(" Did you mean '", nearest, "'?");
}

}  // namespace

std::span<const ObjectMembers> object_members() { return kObjects; }

void check_members(const OrderedJson& object, const std::string& path, ObjectKind kind,
                   const FieldValue& value) {
  check_members(object, path, row_of(kind), value);
}

void check_members(const OrderedJson& object, const std::string& path, const ObjectMembers& row,
                   const FieldValue& value) {
  expect_object(object, path);
  for (const auto& [key, member] : object.items()) {
    if (member.is_null() || has_name(row.read, key) || has_name(row.neutral, key)) continue;
    if (const RejectedMember* rejected = find_rejected(row, key)) {
      if (is_nothing(member)) continue;
      const std::string where = str(path, ".", key);
      throw invalid_field(
          where, str(where, ": expected nothing: it is not supported. ", rejected->advice));
    }
    if (!row.is_open && !value.rules.ignores_unknown_fields) {
      const std::string where = str(path, ".", quote(key));
      throw invalid_field(where,
                          str(where, ": expected no such member.", suggestion_for(row, key)));
    }
    value.ignored.add(row.path, key);
  }
}

OrderedJson read_members(const OrderedJson& object, ObjectKind kind) {
  const ObjectMembers& row = row_of(kind);
  OrderedJson out = OrderedJson::object();
  for (const auto& [key, member] : object.items()) {
    if (has_name(row.read, key)) out[key] = member;
  }
  return out;
}

}  // namespace halley
