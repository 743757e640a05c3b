// A grammar as text (GBNF or Lark), a zero byte, and any bytes as a text of it. Only halley::Error
// may come out of the grammar, the text is checked as in grammar_check.h, and nothing may take
// long.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "halley/base/error.h"
#include "halley/constraint/testing/grammar_check.h"
#include "halley/constraint/text_grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  try {
    halley::check_text(halley::text_grammar(input.substr(0, end), "grammar"),
                       input.substr(std::min(end + 1, input.size())));
  } catch (const halley::Error&) {
  }
  return 0;
}
