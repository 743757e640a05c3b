#include "halley/checkpoint/chat_template/builtin_tables.h"

namespace halley::jinja {
namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& row : table) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (const auto& table :
       {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
    if (const Builtin* row = find_in(table, name)) return row;
  }
  return nullptr;
}

const Builtin* find_test(std::string_view name) { return find_in(tests(), name); }

const Builtin* find_function(std::string_view name) { return find_in(functions(), name); }

const Builtin* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return find_in(string_methods(), name);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return find_in(sequence_methods(), name);
    case Kind::kDict:
      return find_in(dict_methods(), name);
    case Kind::kLoop:
      return find_in(loop_methods(), name);
    case Kind::kCycler:
      return find_in(cycler_methods(), name);
    default:
      return nullptr;
  }
}

}  // namespace halley::jinja
