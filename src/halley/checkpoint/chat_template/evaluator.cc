#include "halley/checkpoint/chat_template/evaluator.h"

#include <utility>

#include "halley/checkpoint/chat_template/access.h"
#include "halley/checkpoint/chat_template/compare.h"
#include "halley/checkpoint/chat_template/to_text.h"

namespace halley::jinja {

Evaluator::Frame::Frame(Runtime& runtime) : runtime_(runtime) {
  if (runtime_.num_frames >= runtime_.limits().num_frames_max) {
    fail("evaluations nested deeper than the limit of ", runtime_.limits().num_frames_max);
  }
  ++runtime_.num_frames;
}

Value Evaluator::evaluate(const Expression& node, const ScopePtr& scope) {
  runtime_.step();
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return node.constant;
    case ExpressionKind::kName:
      return evaluate_name(node, scope);
    default:
      break;
  }
  const Frame frame(runtime_);
  runtime_.line = node.line;
  return evaluate_inner(node, scope);
}

Value Evaluator::evaluate_inner(const Expression& node, const ScopePtr& scope) {
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return node.constant;
    case ExpressionKind::kName:
      return evaluate_name(node, scope);
    case ExpressionKind::kList:
      return runtime_.list(evaluate_all(node, scope));
    case ExpressionKind::kTuple:
      return runtime_.tuple(evaluate_all(node, scope));
    case ExpressionKind::kDict:
      return evaluate_dict(node, scope);
    case ExpressionKind::kNot:
      return Value::boolean(!is_true(evaluate(*node.children[0], scope)));
    case ExpressionKind::kNegate:
      return negate(runtime_, evaluate(*node.children[0], scope));
    case ExpressionKind::kPosit:
      return posit(evaluate(*node.children[0], scope));
    case ExpressionKind::kArithmetic:
      return evaluate_arithmetic(node, scope);
    case ExpressionKind::kConcat:
      return evaluate_concat(node, scope);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return evaluate_logic(node, scope);
    case ExpressionKind::kCompare:
      return evaluate_compare(node, scope);
    case ExpressionKind::kConditional:
      return evaluate_conditional(node, scope);
    case ExpressionKind::kAttribute:
      return get_attribute(runtime_, evaluate(*node.children[0], scope), node.name);
    case ExpressionKind::kItem: {
      const Value object = evaluate(*node.children[0], scope);
      return get_item(runtime_, object, evaluate(*node.children[1], scope));
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(node, scope);
    case ExpressionKind::kCall:
      return evaluate_call(node, scope);
    case ExpressionKind::kFilter:
      return evaluate_filter(node, scope);
    case ExpressionKind::kTest:
      return evaluate_test(node, scope);
  }
  return {};
}

Value Evaluator::evaluate_name(const Expression& node, const ScopePtr& scope) {
  if (const Value* value = runtime_.find_variable(*scope, node.name)) return *value;
  if (const Builtin* function = find_function(node.name)) {
    return Value::object(Kind::kFunction,
                         std::make_shared<FunctionPayload>(&runtime_.meter(), *function));
  }
  return runtime_.undefined(str("'", node.name, "' is undefined"));
}

std::vector<Value> Evaluator::evaluate_all(const Expression& node, const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(node.children.size());
  for (const ExpressionPtr& child : node.children) values.push_back(evaluate(*child, scope));
  return values;
}

Value Evaluator::evaluate_dict(const Expression& node, const ScopePtr& scope) {
  Members members;
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    Value key = evaluate(*node.children[i], scope);
    members.emplace_back(std::move(key), evaluate(*node.children[i + 1], scope));
  }
  return runtime_.dict(std::move(members));
}

Value Evaluator::evaluate_arithmetic(const Expression& node, const ScopePtr& scope) {
  Value left = evaluate(*node.children[0], scope);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    const Value right = evaluate(*node.children[i + 1], scope);
    runtime_.line = node.children[i + 1]->line;
    left = apply_operator(runtime_, node.operators[i], left, right);
  }
  return left;
}

Value Evaluator::evaluate_concat(const Expression& node, const ScopePtr& scope) {
  std::string text;
  for (const ExpressionPtr& child : node.children) {
    text += to_text(runtime_, evaluate(*child, scope));
    runtime_.check_string_size(text.size());
  }
  return runtime_.string(std::move(text));
}

Value Evaluator::evaluate_logic(const Expression& node, const ScopePtr& scope) {
  const bool stops_at = node.kind == ExpressionKind::kOr;
  Value value;
  for (const ExpressionPtr& child : node.children) {
    value = evaluate(*child, scope);
    if (is_true(value) == stops_at) break;
  }
  return value;
}

bool Evaluator::compare(Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEqual:
      return equals(runtime_, left, right);
    case Comparison::kNotEqual:
      return !equals(runtime_, left, right);
    case Comparison::kLess:
      return is_less(runtime_, left, right, "<");
    case Comparison::kGreater:
      return is_less(runtime_, right, left, ">");
    case Comparison::kLessEqual:
      return is_less(runtime_, left, right, "<=") || equals(runtime_, left, right);
    case Comparison::kGreaterEqual:
      return is_less(runtime_, right, left, ">=") || equals(runtime_, left, right);
    case Comparison::kIn:
      return contains(runtime_, right, left);
    case Comparison::kNotIn:
      return !contains(runtime_, right, left);
  }
  return false;
}

Value Evaluator::evaluate_compare(const Expression& node, const ScopePtr& scope) {
  Value left = evaluate(*node.children[0], scope);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = evaluate(*node.children[i + 1], scope);
    if (!compare(node.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_conditional(const Expression& node, const ScopePtr& scope) {
  if (is_true(evaluate(*node.children[0], scope))) return evaluate(*node.children[1], scope);
  if (node.children[2]) return evaluate(*node.children[2], scope);
  return runtime_.undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Value Evaluator::evaluate_slice(const Expression& node, const ScopePtr& scope) {
  const Value object = evaluate(*node.children[0], scope);
  Slice slice;
  std::optional<int64_t>* parts[] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < 3; ++i) {
    const ExpressionPtr& child = node.children[i + 1];
    if (!child) continue;
    const Value value = evaluate(*child, scope);
    if (value.is_none()) continue;
    if (!value.is_integral()) {
      slice.is_usable = false;  // what Python answers depends on the object
    } else {
      *parts[i] = value.as_int();
    }
  }
  return get_slice(runtime_, object, slice);
}

}  // namespace halley::jinja
