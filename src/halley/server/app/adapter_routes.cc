#include "halley/server/app/adapter_routes.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "halley/base/str.h"

namespace halley {
namespace {

constexpr JsonLimits kLimits = {.depth_max = 4, .num_values_max = 100};
constexpr size_t kTextBytesMax = 4096;

Json parse_body(std::string_view body, std::initializer_list<std::string_view> fields) {
  Json json = parse_json(body, "body", kLimits);
  if (!json.is_object()) {
    throw invalid_field("", str("body: expected an object, got ", type_name_of(json), "."));
  }
  for (const auto& [name, value] : json.items()) {
    if (std::find(fields.begin(), fields.end(), name) != fields.end()) continue;
    throw invalid_field(name, str(name, ": unknown field. Remove it."));
  }
  return json;
}

std::string text_of(const Json& json, const char* field) {
  const auto value = json.find(field);
  if (value == json.end() || !value->is_string()) {
    throw invalid_field(field, str(field, ": expected a string, got ",
                                   value == json.end() ? "none" : type_name_of(*value), "."));
  }
  auto text = value->get<std::string>();
  if (text.empty() || text.size() > kTextBytesMax || text.find('\0') != std::string::npos) {
    throw invalid_field(field, str(field, ": expected 1 to ", kTextBytesMax,
                                   " bytes without a zero, got ", text.size(), "."));
  }
  return text;
}

bool replaces_of(const Json& json) {
  const auto value = json.find("load_inplace");
  if (value == json.end() || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  throw invalid_field("load_inplace",
                      str("load_inplace: expected a boolean, got ", type_name_of(*value), "."));
}

}  // namespace

ApiError no_changes() {
  return ApiError(
      "adapter: expected a server whose clients may load adapters, got one without it. "
      "Start it with --lora-folder FOLDER.",
      {.status = 403});
}

OrderedJson load_adapter_by(AdapterTable& adapters, std::string_view body) {
  const Json json = parse_body(body, {"lora_name", "lora_path", "load_inplace"});
  const std::string name = text_of(json, "lora_name");
  adapters.load(name, text_of(json, "lora_path"), replaces_of(json));
  return {{"status", "loaded"}, {"lora_name", name}};
}

OrderedJson unload_adapter_by(AdapterTable& adapters, std::string_view body) {
  const Json json = parse_body(body, {"lora_name"});
  const std::string name = text_of(json, "lora_name");
  adapters.unload(name);
  return {{"status", "unloaded"}, {"lora_name", name}};
}

}  // namespace halley
