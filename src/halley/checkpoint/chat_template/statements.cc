// The statements of a template.
#include <utility>

#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/evaluator.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {

void Evaluator::render(const Body& body, const ScopePtr& scope, OutputBuffer& out) {
  execute(body, scope, out);
}

Evaluator::Flow Evaluator::execute(const Body& body, const ScopePtr& scope, OutputBuffer& out) {
  const Frame frame(runtime_);
  for (const Statement& statement : body) {
    runtime_.step();
    runtime_.line = statement.line;
    const Flow flow = execute(statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, const ScopePtr& scope,
                                   OutputBuffer& out) {
  switch (statement.kind) {
    case StatementKind::kText:
      out.append(statement.text);
      break;
    case StatementKind::kOutput:
      for (const ExpressionPtr& expression : statement.expressions) {
        out.append(to_text(runtime_, evaluate(*expression, scope)));
      }
      break;
    case StatementKind::kIf:
      return execute_if(statement, scope, out);
    case StatementKind::kFor:
      return execute_for(statement, scope, out);
    case StatementKind::kSet:
      assign(statement.targets[0], evaluate(*statement.expressions[0], scope), scope);
      break;
    case StatementKind::kSetBlock:
      return execute_set_block(statement, scope);
    case StatementKind::kMacro:
      runtime_.set_variable(*scope, statement.macro->name, make_macro(*statement.macro, scope));
      break;
    case StatementKind::kCallBlock:
      execute_call_block(statement, scope, out);
      break;
    case StatementKind::kFilterBlock:
      return execute_filter_block(statement, scope, out);
    case StatementKind::kWith:
      return execute_with(statement, scope, out);
    case StatementKind::kGeneration:
      return execute(statement.body, std::make_shared<Scope>(scope), out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_if(const Statement& statement, const ScopePtr& scope,
                                      OutputBuffer& out) {
  for (const Branch& branch : statement.branches) {
    if (is_true(evaluate(*branch.condition, scope))) return execute(branch.body, scope, out);
  }
  return execute(statement.otherwise, scope, out);
}

Evaluator::Flow Evaluator::execute_for(const Statement& statement, const ScopePtr& scope,
                                       OutputBuffer& out) {
  LoopPayload::Condition accepts;
  if (const Expression* condition = statement.expressions[1].get()) {
    accepts = [this, condition, &statement, &scope](const Value& item) {
      const auto item_scope = std::make_shared<Scope>(scope);
      assign(statement.targets[0], item, item_scope);
      return is_true(evaluate(*condition, item_scope));
    };
  }
  std::vector<Value> items = items_of(runtime_, evaluate(*statement.expressions[0], scope));
  const auto loop =
      std::make_shared<LoopPayload>(&runtime_.meter(), std::move(items), std::move(accepts));
  ScopePtr body_scope;
  // As in Jinja, `else` runs unless one round came to the end of the body.
  bool has_finished_round = false;
  for (size_t i = 0; loop->ensure(i + 1); ++i) {
    runtime_.step();
    loop->index0 = i;
    // A scope that no macro looks into is used again.
    if (body_scope == nullptr || body_scope->is_kept) body_scope = std::make_shared<Scope>(scope);
    body_scope->variables.clear();
    runtime_.set_variable(*body_scope, "loop", Value::object(Kind::kLoop, loop));
    assign(statement.targets[0], loop->items[i], body_scope);
    const Flow flow = execute(statement.body, body_scope, out);
    if (flow == Flow::kBreak) break;
    has_finished_round = has_finished_round || flow == Flow::kNext;
  }
  // The loop may outlive the statement in a namespace; what the condition refers to may not.
  loop->accepts = nullptr;
  loop->source_position = loop->source.size();
  if (has_finished_round) return Flow::kNext;
  return execute(statement.otherwise, std::make_shared<Scope>(scope), out);
}

Evaluator::Flow Evaluator::execute_set_block(const Statement& statement, const ScopePtr& scope) {
  OutputBuffer buffer(runtime_);
  const Flow flow = execute(statement.body, std::make_shared<Scope>(scope), buffer);
  if (flow != Flow::kNext) return flow;
  Value value = runtime_.string(buffer.text());
  if (statement.expressions[0]) value = evaluate_filter(*statement.expressions[0], scope, &value);
  assign(statement.targets[0], value, scope);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_filter_block(const Statement& statement, const ScopePtr& scope,
                                                OutputBuffer& out) {
  OutputBuffer buffer(runtime_);
  const auto inner = std::make_shared<Scope>(scope);
  const Flow flow = execute(statement.body, inner, buffer);
  if (flow != Flow::kNext) return flow;
  const Value text = runtime_.string(buffer.text());
  out.append(to_text(runtime_, evaluate_filter(*statement.expressions[0], inner, &text)));
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_with(const Statement& statement, const ScopePtr& scope,
                                        OutputBuffer& out) {
  const auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    // Values are those outside: they do not see the targets before them.
    assign(statement.targets[i], evaluate(*statement.expressions[i], scope), inner);
  }
  return execute(statement.body, inner, out);
}

void Evaluator::execute_call_block(const Statement& statement, const ScopePtr& scope,
                                   OutputBuffer& out) {
  const Value caller = make_macro(*statement.macro, scope);
  out.append(to_text(runtime_, evaluate_call(*statement.expressions[0], scope, caller)));
}

void Evaluator::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (!target.attribute.empty()) {
    const Value* object = runtime_.find_variable(*scope, target.name);
    if (object == nullptr || !object->is(Kind::kNamespace)) {
      fail("cannot assign attribute on non-namespace object");
    }
    runtime_.set_attribute(object->get<NamespacePayload>(), target.attribute, value);
    return;
  }
  if (!target.name.empty()) return runtime_.set_variable(*scope, target.name, value);
  check_defined(value);
  const std::vector<Value> items = items_of(runtime_, value);
  if (items.size() > target.items.size()) {
    fail("too many values to unpack (expected ", target.items.size(), ")");
  }
  if (items.size() < target.items.size()) {
    fail("not enough values to unpack (expected ", target.items.size(), ", got ", items.size(),
         ")");
  }
  for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i], scope);
}

Value Evaluator::make_macro(const MacroDefinition& definition, const ScopePtr& scope) {
  runtime_.keep(scope);
  return Value::object(Kind::kMacro,
                       std::make_shared<MacroPayload>(&runtime_.meter(), definition, scope));
}

}  // namespace halley::jinja
