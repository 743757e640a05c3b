// The syntax tree of a template. Immutable after parsing, so that any thread may render it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/checkpoint/chat_template/callable.h"
#include "halley/checkpoint/chat_template/operators.h"
#include "halley/checkpoint/chat_template/value.h"

namespace halley::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,  // children: key, value, key, value, ...
  kNot,
  kNegate,
  kPosit,
  kArithmetic,  // children joined by `operators`, from left to right
  kConcat,
  kAnd,
  kOr,
  kCompare,      // children joined by `comparisons`
  kConditional,  // children: condition, value, other value or null
  kAttribute,    // children: object
  kItem,         // children: object, key
  kSlice,        // children: object, start, stop, step; the last three may be null
  kCall,         // children: callee
  kFilter,       // children: operand, null at the start of a filter block
  kTest,         // children: operand
};

enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

/// The arguments of a call as written.
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr star;         // *list
  ExpressionPtr double_star;  // **dict
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 1;
  int depth = 1;  // levels below and with this one
  bool is_negated = false;
  std::string name;  // of a name, attribute, filter or test
  Value constant;
  const Builtin* builtin = nullptr;  // of a filter or test
  std::vector<ExpressionPtr> children;
  std::vector<BinaryOperator> operators;
  std::vector<Comparison> comparisons;
  std::unique_ptr<ArgumentList> arguments;
};

/// The target of `set`, `for` and `with`: a name, an attribute of a namespace, or several targets.
struct Target {
  std::string name;       // empty for a tuple
  std::string attribute;  // empty for a plain name
  std::vector<Target> items;
};

struct Statement;
using Body = std::vector<Statement>;

/// A macro, or the block that `call` hands over as `caller` (without a name).
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
  Body body;
};

enum class StatementKind {
  kText,
  kOutput,    // expressions
  kIf,        // branches, then `otherwise`
  kFor,       // targets[0] in expressions[0], test in expressions[1] or null
  kSet,       // targets[0] = expressions[0]
  kSetBlock,  // targets[0] = body, through the filters of expressions[0] or null
  kMacro,
  kCallBlock,    // expressions[0] is the call
  kFilterBlock,  // expressions[0] is the chain of filters
  kWith,         // targets[i] = expressions[i]
  kGeneration,
  kBreak,
  kContinue,
};

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 1;
  std::string text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Branch> branches;
  Body body;
  Body otherwise;
  std::unique_ptr<MacroDefinition> macro;
};

}  // namespace halley::jinja
