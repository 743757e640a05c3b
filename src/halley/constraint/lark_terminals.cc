#include "halley/constraint/lark_terminals.h"

#include <algorithm>
#include <array>

namespace halley {
namespace {

struct Terminal {
  std::string_view name;
  std::string_view regex;
};

// The names and languages of Lark's own module "common".
constexpr auto kTerminals = std::to_array<Terminal>(
    {{"DIGIT", "[0-9]"},
     {"HEXDIGIT", "[0-9a-fA-F]"},
     {"INT", "[0-9]+"},
     {"SIGNED_INT", "[+-]?[0-9]+"},
     {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
     {"FLOAT", R"([0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
     {"SIGNED_FLOAT",
      R"([+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))"},
     {"NUMBER", R"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
     {"SIGNED_NUMBER", R"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
     {"ESCAPED_STRING", R"("(?:[^"\\\n]|\\.)*")"},
     {"LCASE_LETTER", "[a-z]"},
     {"UCASE_LETTER", "[A-Z]"},
     {"LETTER", "[a-zA-Z]"},
     {"WORD", "[a-zA-Z]+"},
     {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
     {"WS_INLINE", R"([ \t]+)"},
     {"WS", R"([ \t\f\r\n]+)"},
     {"CR", R"(\r)"},
     {"LF", R"(\n)"},
     {"NEWLINE", R"((?:\r?\n)+)"},
     {"SH_COMMENT", R"(#[^\n]*)"},
     {"CPP_COMMENT", R"(//[^\n]*)"},
     {"C_COMMENT", R"(/\*(?:[^*]|\*+[^*/])*\*+/)"},
     {"SQL_COMMENT", R"(--[^\n]*)"}});

}  // namespace

std::string_view imported_terminal(std::string_view name) {
  const auto* const found = std::find_if(kTerminals.begin(), kTerminals.end(),
                                         [&](const Terminal& row) { return row.name == name; });
  return found == kTerminals.end() ? std::string_view() : found->regex;
}

}  // namespace halley
