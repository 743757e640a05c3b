#include "halley/constraint/tool_call.h"

#include <algorithm>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/json_grammar.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/token_trie.h"

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

class CallGrammar {
 public:
  explicit CallGrammar(const ToolCallStyle& style) : style_(style) {}

  Grammar make(std::span<const ToolSignature> tools) {
    const ExprId call = any_call(tools);
    const int32_t num_max = style_.may_have_several ? kParallelToolCallsMax : 1;
    switch (style_.form) {
      case ToolCallForm::kLlama3:
        return builder_.finish(call);
      case ToolCallForm::kHermes:
        return builder_.finish(between_tags(call, num_max));
      case ToolCallForm::kMistral:
        break;
    }
    JsonArrayShape list;
    list.items = call;
    list.num_min = 1;
    list.num_max = num_max;
    return builder_.finish(builder_.sequence({mark("[TOOL_CALLS]"), json_.array(list)}));
  }

 private:
  ExprId any_call(std::span<const ToolSignature> tools) {
    const char* key = style_.form == ToolCallForm::kLlama3 ? "parameters" : "arguments";
    std::vector<ExprId> calls;
    for (const ToolSignature& tool : tools) {
      const ExprId arguments = tool.parameters.is_null()
                                   ? json_.any_object()
                                   : json_schema_values(builder_, tool.parameters, tool.where);
      const std::vector<JsonMember> members = {
          {"name", builder_.text(OrderedJson(tool.name).dump()), true}, {key, arguments, true}};
      calls.push_back(json_.object(members, std::nullopt));
    }
    return builder_.choice(calls);
  }

  ExprId between_tags(ExprId call, int32_t num_max) {
    const ExprId one = builder_.sequence({mark("<tool_call>"), builder_.text("\n"), call,
                                          builder_.text("\n"), mark("</tool_call>")});
    if (num_max == 1) return one;
    const ExprId more =
        builder_.repeat(builder_.sequence({builder_.text("\n"), one}), 0, num_max - 1);
    return builder_.sequence({one, more});
  }

  ExprId mark(const std::string& text) {
    const auto& special = style_.special_marks;
    const bool is_special = std::find(special.begin(), special.end(), text) != special.end();
    return builder_.text(is_special ? bytes_of_special(text) : text);
  }

  const ToolCallStyle& style_;
  GrammarBuilder builder_{"tools"};
  JsonGrammar json_{builder_};
};

}  // namespace

Grammar tool_call_grammar(std::span<const ToolSignature> tools, const ToolCallStyle& style) {
  check_tools(tools);
  return CallGrammar(style).make(tools);
}

}  // namespace halley
