// Callables: builtin functions, filters, tests and methods, and the template's macros.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/checkpoint/chat_template/runtime.h"
#include "halley/checkpoint/chat_template/scope.h"

namespace halley::jinja {

struct MacroDefinition;

/// The arguments of a call as they were given.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;

  /// Removes and returns the keyword argument, if it is there.
  std::optional<Value> take_keyword(std::string_view name);
};

/// The arguments of a call of a builtin, each at the place of its parameter.
class Call {
 public:
  /// Binds to the `parameters` (names divided by spaces). Throws for too many, too few (fewer
  /// than `num_required`), unknown or repeated arguments. "*" leaves them in arguments().
  Call(const char* function, std::string_view parameters, int num_required, Arguments arguments);

  Arguments& arguments() { return arguments_; }
  const char* function() const { return function_; }

  /// Whether the parameter was given, and is not None.
  bool has(size_t index) const;
  /// Whether it was given at all.
  bool was_given(size_t index) const;
  /// The argument, or an undefined value.
  const Value& get(size_t index) const;
  /// With a default where it was not given. Throw where it has another type.
  int64_t integer(size_t index, int64_t otherwise) const;
  bool truth(size_t index, bool otherwise) const;
  const std::string& text(size_t index) const;

 private:
  const char* function_;
  Arguments arguments_;
  std::vector<std::optional<Value>> bound_;
};

/// One builtin. `self` is the value that a filter or test is applied to, or a method's object.
struct Builtin {
  const char* name;
  const char* parameters;
  int num_required;
  Value (*apply)(Runtime& runtime, const Value& self, Call& call);
};

Value call_builtin(Runtime& runtime, const Builtin& builtin, const Value& self,
                   Arguments arguments);

struct FunctionPayload : Payload {
  FunctionPayload(Meter* meter, const Builtin& builtin_row);
  const Builtin& builtin;
};

struct MethodPayload : Payload {
  MethodPayload(Meter* meter, Value object, const Builtin& builtin_row);
  Value self;
  const Builtin& builtin;
};

/// The scope is kept alive by the runtime until the rendering ends.
struct MacroPayload : Payload {
  MacroPayload(Meter* meter, const MacroDefinition& macro, std::shared_ptr<Scope> macro_scope);
  const MacroDefinition& definition;
  std::shared_ptr<Scope> scope;
};

/// The name of a macro; empty for what `call` hands over.
const std::string& macro_name(const Value& macro);

/// "<Macro 'name'>".
std::string describe_macro(const Value& macro);

/// The rows of the tables; null where there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
/// Methods of strings, lists, tuples, dictionaries, loop, cycler.
const Builtin* find_method(Kind kind, std::string_view name);

}  // namespace halley::jinja
