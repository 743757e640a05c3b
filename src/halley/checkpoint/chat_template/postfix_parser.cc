// The part of the expression parser for what stands behind an operand: subscripts, calls, filters
// and tests.
#include <algorithm>

#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/expression_parser.h"

namespace halley::jinja {

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (at_operator(".") || at_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (at_operator("|")) {
      node = parse_filters(std::move(node));
    } else if (at_name("is")) {
      node = parse_test(std::move(node));
    } else if (at_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const Token& open = take();
  if (open.text == ".") {
    const Token& attribute = take();
    ExpressionPtr node = make(ExpressionKind::kAttribute, open.line);
    node->children.push_back(std::move(object));
    if (attribute.type == TokenType::kName) {
      node->name = attribute.text;
    } else if (attribute.type == TokenType::kNumber && attribute.number.is(Kind::kInt)) {
      node->kind = ExpressionKind::kItem;
      node->children.push_back(make(ExpressionKind::kConstant, open.line));
      node->children.back()->constant = attribute.number;
    } else {
      fail_at(open.line, str("expected a name or a number behind '.', got ", describe(attribute)));
    }
    return checked(std::move(node));
  }
  ExpressionPtr node = make(ExpressionKind::kItem, open.line);
  node->children.push_back(std::move(object));
  ExpressionPtr key = make(ExpressionKind::kTuple, open.line);
  while (!at_operator("]")) {
    key->children.push_back(parse_subscribed());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  const bool has_slice =
      std::any_of(key->children.begin(), key->children.end(),
                  [](const auto& child) { return child->kind == ExpressionKind::kSlice; });
  if (key->children.size() == 1) {
    key = std::move(key->children[0]);
  } else if (has_slice) {
    fail_at(open.line, "a slice among several subscripts is not supported");
  }
  if (key->kind == ExpressionKind::kSlice) {
    key->children[0] = std::move(node->children[0]);
    return checked(std::move(key));
  }
  node->children.push_back(checked(std::move(key)));
  return checked(std::move(node));
}

// A subscript, or a slice whose object is filled in by the caller.
ExpressionPtr ExpressionParser::parse_subscribed() {
  ExpressionPtr slice = make(ExpressionKind::kSlice, current().line);
  slice->children.resize(4);
  const auto at_part_end = [&] { return at_operator(":") || at_operator("]") || at_operator(","); };
  if (!at_operator(":")) {
    slice->children[1] = parse_expression();
    if (!at_operator(":")) return std::move(slice->children[1]);
  }
  take();
  if (!at_part_end()) slice->children[2] = parse_expression();
  if (skip_operator(":") && !at_part_end()) slice->children[3] = parse_expression();
  return slice;
}

bool ExpressionParser::parse_star_argument(ArgumentList& arguments, int line) {
  if (at_operator("*")) {
    if (arguments.star || arguments.double_star) {
      fail_at(line, "invalid syntax for function call expression");
    }
    take();
    arguments.star = parse_expression();
    return true;
  }
  if (at_operator("**")) {
    if (arguments.double_star) fail_at(line, "invalid syntax for function call expression");
    take();
    arguments.double_star = parse_expression();
    return true;
  }
  return false;
}

std::unique_ptr<ArgumentList> ExpressionParser::parse_arguments() {
  auto arguments = std::make_unique<ArgumentList>();
  const int line = current().line;
  expect_operator("(");
  while (!at_operator(")")) {
    const bool is_keyword = at(TokenType::kName) && next_token().type == TokenType::kOperator &&
                            next_token().text == "=";
    if (parse_star_argument(*arguments, line)) {
      // Stored already.
    } else if (is_keyword) {
      if (arguments->double_star) fail_at(line, "invalid syntax for function call expression");
      std::string name = take().text;
      take();
      arguments->keyword.emplace_back(std::move(name), parse_expression());
    } else {
      if (arguments->star || arguments->double_star || !arguments->keyword.empty()) {
        fail_at(line, "invalid syntax for function call expression");
      }
      arguments->positional.push_back(parse_expression());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  ExpressionPtr node = make(ExpressionKind::kCall, current().line);
  node->children.push_back(std::move(callee));
  node->arguments = parse_arguments();
  return checked(std::move(node));
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_operator(".")) name += "." + expect_name();
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr operand, bool starts_inline) {
  while (starts_inline || skip_operator("|")) {
    starts_inline = false;
    operand = parse_filter(std::move(operand));
  }
  return operand;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr operand) {
  ExpressionPtr node = make(ExpressionKind::kFilter, current().line);
  node->name = parse_dotted_name();
  node->builtin = find_filter(node->name);
  if (node->builtin == nullptr) {
    fail_at(node->line, str("no filter named ", quote(node->name), " is supported"));
  }
  node->children.push_back(std::move(operand));
  if (at_operator("(")) node->arguments = parse_arguments();
  return checked(std::move(node));
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr operand) {
  ExpressionPtr node = make(ExpressionKind::kTest, take().line);
  node->is_negated = skip_name("not");
  node->name = parse_dotted_name();
  node->builtin = find_test(node->name);
  if (node->builtin == nullptr) {
    fail_at(node->line, str("no test named ", quote(node->name), " is supported"));
  }
  node->children.push_back(std::move(operand));
  const bool at_literal =
      at(TokenType::kString) || at(TokenType::kNumber) || at_operator("[") || at_operator("{");
  const bool at_argument_name =
      at(TokenType::kName) && !at_name("else") && !at_name("or") && !at_name("and");
  if (at_operator("(")) {
    node->arguments = parse_arguments();
  } else if (at_literal || at_argument_name) {
    if (at_name("is")) fail_at(node->line, "You cannot chain multiple tests with is");
    node->arguments = std::make_unique<ArgumentList>();
    const Level level(*this);
    node->arguments->positional.push_back(parse_postfix(parse_primary()));
  }
  return checked(std::move(node));
}

}  // namespace halley::jinja
