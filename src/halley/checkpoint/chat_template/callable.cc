#include "halley/checkpoint/chat_template/callable.h"

#include "halley/checkpoint/chat_template/ast.h"
#include "halley/checkpoint/chat_template/compare.h"

namespace halley::jinja {
namespace {

std::vector<std::string_view> split_names(std::string_view names) {
  std::vector<std::string_view> result;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    result.push_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return result;
}

}  // namespace

std::optional<Value> Arguments::take_keyword(std::string_view name) {
  for (size_t i = 0; i < keyword.size(); ++i) {
    if (keyword[i].first != name) continue;
    Value value = std::move(keyword[i].second);
    keyword.erase(keyword.begin() + static_cast<ptrdiff_t>(i));
    return value;
  }
  return std::nullopt;
}

Call::Call(const char* function, std::string_view parameters, int num_required, Arguments arguments)
    : function_(function), arguments_(std::move(arguments)) {
  if (parameters == "*") return;
  const std::vector<std::string_view> names = split_names(parameters);
  if (arguments_.positional.size() > names.size()) {
    fail(function_, "() takes at most ", names.size(), " argument(s), got ",
         arguments_.positional.size());
  }
  bound_.resize(names.size());
  for (size_t i = 0; i < arguments_.positional.size(); ++i) {
    bound_[i] = std::move(arguments_.positional[i]);
  }
  for (auto& [name, value] : arguments_.keyword) {
    size_t i = 0;
    while (i < names.size() && names[i] != name) ++i;
    if (i == names.size()) fail(function_, "() takes no keyword argument ", quote(name));
    if (bound_[i]) fail(function_, "() got two values for the argument ", quote(name));
    bound_[i] = std::move(value);
  }
  for (size_t i = 0; i < static_cast<size_t>(num_required); ++i) {
    if (!bound_[i]) fail(function_, "() needs the argument \"", names[i], "\"");
  }
}

bool Call::was_given(size_t index) const { return bound_[index].has_value(); }

bool Call::has(size_t index) const { return bound_[index] && !bound_[index]->is_none(); }

const Value& Call::get(size_t index) const {
  static const Value kMissing = Value();
  return bound_[index] ? *bound_[index] : kMissing;
}

int64_t Call::integer(size_t index, int64_t otherwise) const {
  if (!has(index)) return otherwise;
  const Value& value = get(index);
  check_defined(value);
  if (!value.is_integral()) {
    fail(function_, "() expects an integer, got ", type_name_of(value.kind()));
  }
  return value.as_int();
}

bool Call::truth(size_t index, bool otherwise) const {
  return was_given(index) ? is_true(get(index)) : otherwise;
}

const std::string& Call::text(size_t index) const {
  const Value& value = get(index);
  check_defined(value);
  if (!value.is_string()) {
    fail(function_, "() expects a string, got ", type_name_of(value.kind()));
  }
  return value.text();
}

Value call_builtin(Runtime& runtime, const Builtin& builtin, const Value& self,
                   Arguments arguments) {
  runtime.step();
  Call call(builtin.name, builtin.parameters, builtin.num_required, std::move(arguments));
  return builtin.apply(runtime, self, call);
}

FunctionPayload::FunctionPayload(Meter* meter, const Builtin& builtin_row)
    : Payload(meter, sizeof(FunctionPayload), 0), builtin(builtin_row) {}

MethodPayload::MethodPayload(Meter* meter, Value object, const Builtin& builtin_row)
    : Payload(meter, sizeof(MethodPayload), 1 + object.depth()),
      self(std::move(object)),
      builtin(builtin_row) {}

MacroPayload::MacroPayload(Meter* meter, const MacroDefinition& macro,
                           std::shared_ptr<Scope> macro_scope)
    : Payload(meter, sizeof(MacroPayload), 0), definition(macro), scope(std::move(macro_scope)) {}

const std::string& macro_name(const Value& macro) {
  return macro.get<MacroPayload>().definition.name;
}

std::string describe_macro(const Value& macro) {
  const std::string& name = macro_name(macro);
  return name.empty() ? "<Macro anonymous>" : str("<Macro '", name, "'>");
}

}  // namespace halley::jinja
