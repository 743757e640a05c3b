#include "halley/checkpoint/chat_template/expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "halley/base/str.h"

namespace halley::jinja {
namespace {

Value constant_string(std::string text) {
  return Value::object(Kind::kString, std::make_shared<StringPayload>(nullptr, std::move(text)));
}

std::optional<Comparison> comparison_of(const Token& token) {
  if (token.type != TokenType::kOperator) return std::nullopt;
  if (token.text == "==") return Comparison::kEqual;
  if (token.text == "!=") return Comparison::kNotEqual;
  if (token.text == "<") return Comparison::kLess;
  if (token.text == "<=") return Comparison::kLessEqual;
  if (token.text == ">") return Comparison::kGreater;
  if (token.text == ">=") return Comparison::kGreaterEqual;
  return std::nullopt;
}

int depth_of(const ArgumentList& arguments) {
  int depth = 0;
  for (const auto& argument : arguments.positional) depth = std::max(depth, argument->depth);
  for (const auto& [name, argument] : arguments.keyword) depth = std::max(depth, argument->depth);
  if (arguments.star) depth = std::max(depth, arguments.star->depth);
  if (arguments.double_star) depth = std::max(depth, arguments.double_star->depth);
  return depth;
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser_.depth_ >= parser_.depth_max_) {
    parser_.fail_at(parser_.current().line,
                    str("nested deeper than the limit of ", parser_.depth_max_, " levels"));
  }
  ++parser_.depth_;
}

bool ExpressionParser::at_operator(std::string_view op) const {
  return current().type == TokenType::kOperator && current().text == op;
}

bool ExpressionParser::at_name(std::string_view name) const {
  return current().type == TokenType::kName && current().text == name;
}

const Token& ExpressionParser::take() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_unexpected(str("'", op, "'"));
}

std::string ExpressionParser::expect_name() {
  if (!at(TokenType::kName)) fail_unexpected("a name");
  return take().text;
}

void ExpressionParser::fail_at(int line, const std::string& message) const {
  throw SyntaxFailure(line, message);
}

void ExpressionParser::fail_unexpected(std::string_view expected) const {
  fail_at(current().line, str("expected ", expected, ", got ", describe(current())));
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

// Sets the depth of a finished node: chains like a.b.c nest without recursion of the parser.
ExpressionPtr ExpressionParser::checked(ExpressionPtr node) const {
  int depth = node->arguments ? depth_of(*node->arguments) : 0;
  for (const ExpressionPtr& child : node->children) {
    if (child) depth = std::max(depth, child->depth);
  }
  node->depth = depth + 1;
  if (node->depth > depth_max_) {
    fail_at(node->line, str("nested deeper than the limit of ", depth_max_, " levels"));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
  const Level level(*this);
  ExpressionPtr node = parse_or();
  if (!with_conditional) return node;
  while (at_name("if")) {
    ExpressionPtr conditional = make(ExpressionKind::kConditional, take().line);
    conditional->children.push_back(parse_or());
    conditional->children.push_back(std::move(node));
    conditional->children.push_back(skip_name("else") ? parse_expression() : nullptr);
    node = checked(std::move(conditional));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr first = parse_and();
  if (!at_name("or")) return first;
  ExpressionPtr node = make(ExpressionKind::kOr, current().line);
  node->children.push_back(std::move(first));
  while (skip_name("or")) node->children.push_back(parse_and());
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr first = parse_not();
  if (!at_name("and")) return first;
  ExpressionPtr node = make(ExpressionKind::kAnd, current().line);
  node->children.push_back(std::move(first));
  while (skip_name("and")) node->children.push_back(parse_not());
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Level level(*this);
  ExpressionPtr node = make(ExpressionKind::kNot, take().line);
  node->children.push_back(parse_not());
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_compare() {
  ExpressionPtr first = parse_sum();
  ExpressionPtr node;
  while (true) {
    std::optional<Comparison> comparison = comparison_of(current());
    size_t num_tokens = 1;
    if (at_name("in")) comparison = Comparison::kIn;
    if (at_name("not") && next_token().type == TokenType::kName && next_token().text == "in") {
      comparison = Comparison::kNotIn;
      num_tokens = 2;
    }
    if (!comparison) break;
    if (!node) {
      node = make(ExpressionKind::kCompare, current().line);
      node->children.push_back(std::move(first));
    }
    for (size_t i = 0; i < num_tokens; ++i) take();
    node->comparisons.push_back(*comparison);
    node->children.push_back(parse_sum());
  }
  return node ? checked(std::move(node)) : std::move(first);
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr first = parse_concat();
  if (!at_operator("+") && !at_operator("-")) return first;
  ExpressionPtr node = make(ExpressionKind::kArithmetic, current().line);
  node->children.push_back(std::move(first));
  while (at_operator("+") || at_operator("-")) {
    node->operators.push_back(take().text == "+" ? BinaryOperator::kAdd
                                                 : BinaryOperator::kSubtract);
    node->children.push_back(parse_concat());
  }
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_concat() {
  ExpressionPtr first = parse_term();
  if (!at_operator("~")) return first;
  ExpressionPtr node = make(ExpressionKind::kConcat, current().line);
  node->children.push_back(std::move(first));
  while (skip_operator("~")) node->children.push_back(parse_term());
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_term() {
  static const std::array<std::pair<std::string_view, BinaryOperator>, 4> kOperators = {{
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo},
  }};
  ExpressionPtr first = parse_power();
  ExpressionPtr node;
  while (true) {
    const auto* row = std::find_if(kOperators.begin(), kOperators.end(),
                                   [&](const auto& entry) { return at_operator(entry.first); });
    if (row == kOperators.end()) break;
    if (!node) {
      node = make(ExpressionKind::kArithmetic, current().line);
      node->children.push_back(std::move(first));
    }
    take();
    node->operators.push_back(row->second);
    node->children.push_back(parse_power());
  }
  return node ? checked(std::move(node)) : std::move(first);
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr first = parse_unary();
  if (!at_operator("**")) return first;
  ExpressionPtr node = make(ExpressionKind::kArithmetic, current().line);
  node->children.push_back(std::move(first));
  while (skip_operator("**")) {
    node->operators.push_back(BinaryOperator::kPower);
    node->children.push_back(parse_unary());
  }
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr node;
  if (at_operator("-") || at_operator("+")) {
    const Level level(*this);
    const Token& sign = take();
    node = make(sign.text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPosit, sign.line);
    node->children.push_back(parse_unary(false));
    node = checked(std::move(node));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token& token = take();
  ExpressionPtr node = make(ExpressionKind::kConstant, token.line);
  if (token.text == "true" || token.text == "True") {
    node->constant = Value::boolean(true);
  } else if (token.text == "false" || token.text == "False") {
    node->constant = Value::boolean(false);
  } else if (token.text == "none" || token.text == "None") {
    node->constant = Value::none();
  } else {
    node->kind = ExpressionKind::kName;
    node->name = token.text;
    for (MacroDefinition* macro : open_macros_) {
      macro->uses_varargs = macro->uses_varargs || token.text == "varargs";
      macro->uses_kwargs = macro->uses_kwargs || token.text == "kwargs";
      macro->uses_caller = macro->uses_caller || token.text == "caller";
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_primary() {
  const int line = current().line;
  if (at(TokenType::kName)) return parse_name();
  if (at(TokenType::kString)) {
    std::string text;
    while (at(TokenType::kString)) text += take().text;
    ExpressionPtr node = make(ExpressionKind::kConstant, line);
    node->constant = constant_string(std::move(text));
    return node;
  }
  if (at(TokenType::kNumber)) {
    ExpressionPtr node = make(ExpressionKind::kConstant, line);
    node->constant = take().number;
    return node;
  }
  if (skip_operator("(")) {
    ExpressionPtr node = parse_tuple(true, {}, true);
    expect_operator(")");
    return node;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  fail_unexpected("an expression");
}

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return at(TokenType::kVariableEnd) || at(TokenType::kBlockEnd) || at_operator(")") ||
         (!end_name.empty() && at_name(end_name));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_name,
                                            bool is_in_parentheses) {
  ExpressionPtr node = make(ExpressionKind::kTuple, current().line);
  bool is_tuple = false;
  while (!at_tuple_end(end_name)) {
    node->children.push_back(parse_expression(with_conditional));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && node->children.size() == 1) return std::move(node->children[0]);
  if (!is_tuple && !is_in_parentheses) fail_unexpected("an expression");
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr node = make(ExpressionKind::kList, take().line);
  while (!at_operator("]")) {
    node->children.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr node = make(ExpressionKind::kDict, take().line);
  while (!at_operator("}")) {
    node->children.push_back(parse_expression());
    expect_operator(":");
    node->children.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return checked(std::move(node));
}

}  // namespace halley::jinja
