// Calls of macros, methods, functions, filters and tests.
#include <algorithm>
#include <utility>

#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/evaluator.h"

namespace halley::jinja {
namespace {

// One macro call inside others, while it lives.
class CallLevel {
 public:
  explicit CallLevel(Runtime& runtime) : runtime_(runtime) {
    if (runtime_.num_calls >= runtime_.limits().depth_max) {
      fail("macro calls nested deeper than the limit of ", runtime_.limits().depth_max);
    }
    ++runtime_.num_calls;
  }
  ~CallLevel() { --runtime_.num_calls; }
  CallLevel(const CallLevel&) = delete;
  CallLevel& operator=(const CallLevel&) = delete;

 private:
  Runtime& runtime_;
};

bool has_parameter(const MacroDefinition& definition, std::string_view name) {
  return std::find(definition.parameters.begin(), definition.parameters.end(), name) !=
         definition.parameters.end();
}

}  // namespace

Arguments Evaluator::evaluate_arguments(const Expression& node, const ScopePtr& scope) {
  Arguments arguments;
  if (!node.arguments) return arguments;
  for (const ExpressionPtr& argument : node.arguments->positional) {
    arguments.positional.push_back(evaluate(*argument, scope));
  }
  for (const auto& [name, argument] : node.arguments->keyword) {
    if (arguments.take_keyword(name)) fail("the keyword argument ", quote(name), " is repeated");
    arguments.keyword.emplace_back(name, evaluate(*argument, scope));
  }
  if (node.arguments->star) {
    const Value list = evaluate(*node.arguments->star, scope);
    for (Value& item : items_of(runtime_, list)) arguments.positional.push_back(std::move(item));
  }
  if (node.arguments->double_star) {
    const Value dict = evaluate(*node.arguments->double_star, scope);
    check_defined(dict);
    if (!dict.is_dict()) fail("the argument behind ** must be a mapping");
    for (const auto& [key, value] : dict.dict().members) {
      if (!key.is_string()) fail("keywords must be strings");
      runtime_.step(1 + arguments.keyword.size() / 8);
      if (arguments.take_keyword(key.text())) {
        fail("the keyword argument ", quote(key.text()), " is repeated");
      }
      arguments.keyword.emplace_back(key.text(), value);
    }
  }
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& node, const ScopePtr& scope,
                               std::optional<Value> caller) {
  const Frame frame(runtime_);
  const Value callee = evaluate(*node.children[0], scope);
  Arguments arguments = evaluate_arguments(node, scope);
  if (caller) arguments.keyword.emplace_back("caller", std::move(*caller));
  runtime_.line = node.line;
  return call(callee, std::move(arguments));
}

Value Evaluator::evaluate_filter(const Expression& node, const ScopePtr& scope,
                                 const Value* block_text) {
  const Frame frame(runtime_);
  const Expression* operand = node.children[0].get();
  Value value;
  if (operand == nullptr) {
    value = *block_text;
  } else if (operand->kind == ExpressionKind::kFilter) {
    value = evaluate_filter(*operand, scope, block_text);
  } else {
    value = evaluate(*operand, scope);
  }
  Arguments arguments = evaluate_arguments(node, scope);
  runtime_.line = node.line;
  return call_builtin(runtime_, *node.builtin, value, std::move(arguments));
}

Value Evaluator::evaluate_test(const Expression& node, const ScopePtr& scope) {
  const Value operand = evaluate(*node.children[0], scope);
  Arguments arguments = evaluate_arguments(node, scope);
  runtime_.line = node.line;
  const Value result = call_builtin(runtime_, *node.builtin, operand, std::move(arguments));
  return Value::boolean(is_true(result) != node.is_negated);
}

Value Evaluator::call(const Value& callee, Arguments arguments) {
  switch (callee.kind()) {
    case Kind::kUndefined:
      fail_undefined(callee);
    case Kind::kMacro:
      return call_macro(callee.get<MacroPayload>(), std::move(arguments));
    case Kind::kFunction:
      return call_builtin(runtime_, callee.get<FunctionPayload>().builtin, Value(),
                          std::move(arguments));
    case Kind::kMethod: {
      const auto& method = callee.get<MethodPayload>();
      return call_builtin(runtime_, method.builtin, method.self, std::move(arguments));
    }
    case Kind::kJoiner: {
      auto& joiner = callee.get<JoinerPayload>();
      return std::exchange(joiner.is_used, true) ? joiner.separator : runtime_.string("");
    }
    case Kind::kLoop:
      fail(
          "The loop must have the 'recursive' marker to be called recursively, which is not "
          "supported");
    default:
      fail("'", type_name_of(callee.kind()), "' object is not callable");
  }
}

void Evaluator::bind_parameters(const MacroDefinition& definition, Arguments& arguments,
                                const ScopePtr& scope) {
  const size_t num_parameters = definition.parameters.size();
  const size_t num_positional = std::min(arguments.positional.size(), num_parameters);
  std::vector<size_t> missing;
  for (size_t i = 0; i < num_parameters; ++i) {
    const std::string& name = definition.parameters[i];
    std::optional<Value> value;
    if (i < num_positional) {
      value = arguments.positional[i];
    } else {
      value = arguments.take_keyword(name);
    }
    if (value) {
      runtime_.set_variable(*scope, name, std::move(*value));
    } else {
      missing.push_back(i);
    }
  }
  const size_t num_required = num_parameters - definition.defaults.size();
  for (const size_t i : missing) {
    const std::string& name = definition.parameters[i];
    if (i >= num_required) {
      Value value = evaluate(*definition.defaults[i - num_required], scope);
      runtime_.set_variable(*scope, name, std::move(value));
    } else {
      runtime_.set_variable(*scope, name,
                            runtime_.undefined(str("parameter '", name, "' was not provided")));
    }
  }
  arguments.positional.erase(arguments.positional.begin(),
                             arguments.positional.begin() + static_cast<ptrdiff_t>(num_positional));
}

Value Evaluator::call_macro(const MacroPayload& macro, Arguments arguments) {
  const CallLevel level(runtime_);
  const MacroDefinition& definition = macro.definition;
  const int line = runtime_.line;
  const auto scope = std::make_shared<Scope>(macro.scope);
  bind_parameters(definition, arguments, scope);
  runtime_.line = line;
  if (definition.uses_caller && !has_parameter(definition, "caller")) {
    std::optional<Value> caller = arguments.take_keyword("caller");
    runtime_.set_variable(*scope, "caller",
                          caller ? *caller : runtime_.undefined("No caller defined"));
  }
  if (definition.uses_kwargs) {
    Members members;
    for (auto& [name, value] : arguments.keyword) {
      members.emplace_back(runtime_.string(name), std::move(value));
    }
    runtime_.set_variable(*scope, "kwargs", runtime_.dict(std::move(members)));
  } else if (!arguments.keyword.empty()) {
    fail("macro '", definition.name, "' takes no keyword argument ",
         quote(arguments.keyword[0].first));
  }
  if (definition.uses_varargs) {
    runtime_.set_variable(*scope, "varargs", runtime_.tuple(std::move(arguments.positional)));
  } else if (!arguments.positional.empty()) {
    fail("macro '", definition.name, "' takes not more than ", definition.parameters.size(),
         " argument(s)");
  }
  OutputBuffer out(runtime_);
  execute(definition.body, scope, out);
  runtime_.line = line;
  return runtime_.string(out.text());
}

}  // namespace halley::jinja
