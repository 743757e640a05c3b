// The fields tools and tool_choice.
#include <string>

#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/field_values.h"
#include "halley/server/openai/member_table.h"

namespace halley {
namespace {

constexpr size_t kToolsMax = 128;
constexpr size_t kDescriptionBytesMax = size_t{64} << 10;

void expect_function_type(const OrderedJson& object, const std::string& path) {
  const std::string where = path + ".type";
  const std::string type = string_member(object, "type", path, kNameBytesMax);
  if (type == "function") return;
  throw invalid_field(where, str(where, ": expected \"function\", got ", quote(type), "."));
}

ApiTool tool_of(const OrderedJson& tool, const std::string& path, const FieldValue& value) {
  check_members(tool, path, ObjectKind::kTool, value);
  expect_function_type(tool, path);
  const std::string where = path + ".function";
  const OrderedJson& function = object_member(tool, "function", path);
  check_members(function, where, ObjectKind::kToolFunction, value);
  ApiTool out;
  out.name = string_member(function, "name", where, kNameBytesMax);
  check_name(out.name, where + ".name");
  const auto description = function.find("description");
  if (description != function.end() && !description->is_null()) {
    string_member(function, "description", where, kDescriptionBytesMax);
  }
  out.parameters = OrderedJson::object();
  const auto parameters = function.find("parameters");
  if (parameters != function.end() && !parameters->is_null()) {
    out.parameters = object_member(function, "parameters", where);
  }
  out.is_strict = bool_member(function, "strict", where);
  return out;
}

}  // namespace

void store_tools(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  if (!json.is_array() || json.size() > kToolsMax) {
    throw invalid_field(value.name,
                        str("tools: expected a list of at most ", kToolsMax, " tools, got ",
                            json.is_array() ? str(json.size()) : kind_in_words(json), "."));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    ApiTool tool = tool_of(json[i], str("tools[", i, "]"), value);
    for (const ApiTool& other : request.tools) {
      if (other.name != tool.name) continue;
      const std::string path = str("tools[", i, "].function.name");
      throw invalid_field(path, str(path, ": expected another name for every tool, got ",
                                    quote(tool.name), " twice."));
    }
    request.tools.push_back(std::move(tool));
  }
  if (json.empty()) return;
  // The template writes every member of a tool into the prompt.
  request.tools_json = OrderedJson::array();
  for (const OrderedJson& tool : json) {
    OrderedJson read = read_members(tool, ObjectKind::kTool);
    read["function"] = read_members(read["function"], ObjectKind::kToolFunction);
    request.tools_json.push_back(std::move(read));
  }
}

void store_tool_choice(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = value.json;
  if (json.is_string()) {
    if (json == "none") request.tool_choice = ToolChoice{ToolChoice::Kind::kNone};
    if (json == "auto") request.tool_choice = ToolChoice{ToolChoice::Kind::kAuto};
    if (json == "required") request.tool_choice = ToolChoice{ToolChoice::Kind::kRequired};
    if (request.tool_choice) return;
    throw invalid_field(value.name,
                        str("tool_choice: expected none, auto, required or a function, got ",
                            quote(json.get_ref<const std::string&>(), 40), "."));
  }
  check_members(json, value.name, ObjectKind::kToolChoice, value);
  expect_function_type(json, value.name);
  const OrderedJson& function = object_member(json, "function", value.name);
  check_members(function, "tool_choice.function", ObjectKind::kToolChoiceFunction, value);
  request.tool_choice =
      ToolChoice{ToolChoice::Kind::kNamed,
                 string_member(function, "name", "tool_choice.function", kNameBytesMax)};
}

}  // namespace halley
