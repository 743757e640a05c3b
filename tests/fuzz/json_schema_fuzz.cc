// A JSON Schema, a zero byte, and any bytes as a text. Only halley::Error may come out of the
// schema, the text is checked as in grammar_check.h, and nothing may take long.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "halley/base/error.h"
#include "halley/constraint/json_schema.h"
#include "halley/constraint/testing/grammar_check.h"
#include "halley/json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  try {
    const auto schema = halley::parse_ordered_json(input.substr(0, end), "schema");
    halley::check_text(halley::json_schema_grammar(schema, "schema"),
                       input.substr(std::min(end + 1, input.size())));
  } catch (const halley::Error&) {
  }
  return 0;
}
