// Looks for tool calls in any text, the first byte naming the dialect. The result must not depend
// on how the text was cut into pieces, and text without calls must come out as it went in.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/json/json.h"
#include "halley/server/openai/tool_calls.h"

namespace {

halley::ToolOutput parse(halley::ToolDialect dialect, std::string_view text, size_t num_bytes) {
  static const std::vector<halley::ApiTool> kTools = {
      {.name = "f",
       .parameters = halley::OrderedJson::parse(R"({"properties": {"s": {"type": "string"}}})")}};
  const auto parser = halley::make_tool_call_parser(dialect, kTools);
  halley::ToolOutput output;
  for (size_t i = 0; i < text.size(); i += num_bytes) {
    parser->push(text.substr(i, num_bytes), output);
  }
  parser->finish(output);
  return output;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  // '0' is the first row; the last one has no parser.
  const auto dialects = halley::tool_dialects();
  const size_t row = static_cast<uint8_t>(data[0] - '0') % (dialects.size() - 1);
  const halley::ToolDialect dialect = dialects[row].dialect;
  const halley::ToolOutput whole = parse(dialect, text, size);
  const halley::ToolOutput pieces = parse(dialect, text, 1);
  HALLEY_CHECK(whole.content == pieces.content, whole.content, pieces.content);
  HALLEY_CHECK(whole.calls.size() == pieces.calls.size(), whole.calls.size());
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    HALLEY_CHECK(whole.calls[i].arguments == pieces.calls[i].arguments, i);
  }
  HALLEY_CHECK(!whole.calls.empty() || whole.content == text, whole.content);
  return 0;
}
