#include "halley/constraint/tool_call.h"

#include <algorithm>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/json_grammar.h"
#include "halley/constraint/json_schema.h"

namespace halley {
namespace {

bool is_tool_name(const std::string& name) {
  const auto is_name_char = [](char c) {
    return ('0' <= c && c <= '9') || ('A' <= c && c <= 'Z') || ('a' <= c && c <= 'z') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kToolNameBytesMax &&
         std::all_of(name.begin(), name.end(), is_name_char);
}

void check_tools(std::span<const ToolSignature> tools) {
  if (tools.empty() || tools.size() > kToolsMax) {
    throw InputError(str("tools: expected 1 to ", kToolsMax, " tools, got ", tools.size(), "."));
  }
  for (const ToolSignature& tool : tools) {
    if (is_tool_name(tool.name)) continue;
    throw InputError(str(tool.where, ": expected a function name of 1 to ", kToolNameBytesMax,
                         " letters, digits and the signs _ - . , got ", quote(tool.name), "."));
  }
}

}  // namespace

Grammar tool_call_grammar(std::span<const ToolSignature> tools, ToolCallForm form,
                          bool may_have_several) {
  check_tools(tools);
  GrammarBuilder builder("tools");
  JsonGrammar json(builder);
  const bool is_hermes = form == ToolCallForm::kHermes;
  std::vector<ExprId> calls;
  for (const ToolSignature& tool : tools) {
    const ExprId arguments = tool.parameters.is_null()
                                 ? json.any_object()
                                 : json_schema_values(builder, tool.parameters, tool.where);
    const std::vector<JsonMember> members = {
        {"name", builder.text(OrderedJson(tool.name).dump()), true},
        {is_hermes ? "arguments" : "parameters", arguments, true}};
    calls.push_back(json.object(members, std::nullopt));
  }
  ExprId call = builder.choice(calls);
  if (!is_hermes) return builder.finish(call);
  call = builder.sequence({builder.text("<tool_call>\n"), call, builder.text("\n</tool_call>")});
  if (!may_have_several) return builder.finish(call);
  const ExprId more =
      builder.repeat(builder.sequence({builder.text("\n"), call}), 0, kParallelToolCallsMax - 1);
  return builder.finish(builder.sequence({call, more}));
}

}  // namespace halley
