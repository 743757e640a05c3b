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

}  // namespace

ApiTool function_of(const OrderedJson& function, const std::string& path,
                    const char* parameters_name) {
  ApiTool out;
  out.name = string_member(function, "name", path, kNameBytesMax);
  check_name(out.name, path + ".name");
  const auto description = function.find("description");
  if (description != function.end() && !description->is_null()) {
    string_member(function, "description", path, kDescriptionBytesMax);
  }
  out.parameters = OrderedJson::object();
  const auto parameters = function.find(parameters_name);
  if (parameters != function.end() && !parameters->is_null()) {
    out.parameters = object_member(function, parameters_name, path);
  }
  out.is_strict = bool_member(function, "strict", path);
  return out;
}

const OrderedJson& list_of_tools(const FieldValue& value) {
  if (value.json.is_array() && value.json.size() <= kToolsMax) return value.json;
  throw invalid_field(
      value.name,
      str("tools: expected a list of at most ", kToolsMax, " tools, got ",
          value.json.is_array() ? str(value.json.size()) : kind_in_words(value.json), "."));
}

void add_tool(ApiTool tool, OrderedJson json, const std::string& name_path, ApiRequest& request) {
  for (const ApiTool& other : request.tools) {
    if (other.name != tool.name) continue;
    throw invalid_field(name_path, str(name_path, ": expected another name for every tool, got ",
                                       quote(tool.name), " twice."));
  }
  request.tools.push_back(std::move(tool));
  if (request.tools_json.is_null()) request.tools_json = OrderedJson::array();
  request.tools_json.push_back(std::move(json));
}

void store_tools(const FieldValue& value, ApiRequest& request) {
  const OrderedJson& json = list_of_tools(value);
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string path = str("tools[", i, "]");
    check_members(json[i], path, ObjectKind::kTool, value);
    expect_function_type(json[i], path);
    const OrderedJson& function = object_member(json[i], "function", path);
    check_members(function, path + ".function", ObjectKind::kToolFunction, value);
    // The template writes every member of a tool into the prompt.
    OrderedJson read = read_members(json[i], ObjectKind::kTool);
    read["function"] = read_members(function, ObjectKind::kToolFunction);
    add_tool(function_of(function, path + ".function", "parameters"), std::move(read),
             path + ".function.name", request);
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
