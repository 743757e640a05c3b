#include "halley/checkpoint/chat_template/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/expression_parser.h"

namespace halley::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  Parser(std::string_view source, int depth_max) : ExpressionParser(tokenize(source), depth_max) {}

  Body parse() {
    Body body = parse_body({});
    if (!at(TokenType::kEnd)) fail_unexpected("the end of the template");
    return body;
  }

 private:
  using Names = std::initializer_list<std::string_view>;
  using StatementParser = Statement (Parser::*)();

  Body parse_body(Names end_names);
  Body parse_block_body(Names end_names);
  Body parse_block_to(std::string_view end_name);
  bool at_end_name(Names end_names) const;
  Statement parse_text();
  Statement parse_output();
  Statement parse_statement();
  Statement parse_set();
  Statement parse_for();
  Statement parse_if();
  Statement parse_with();
  Statement parse_macro();
  Statement parse_call_block();
  Statement parse_filter_block();
  Statement parse_generation();
  Statement parse_print();
  Statement parse_loop_control();
  void parse_signature(MacroDefinition& macro);
  Body parse_macro_body(MacroDefinition& macro, std::string_view end_name);
  Target parse_target(std::string_view end_name, bool allows_attribute);
  Target parse_single_target(bool allows_attribute);
  Statement start(StatementKind kind);
  void end_tag();

  int num_open_loops_ = 0;
};

Statement Parser::start(StatementKind kind) {
  Statement statement;
  statement.kind = kind;
  statement.line = current().line;
  return statement;
}

void Parser::end_tag() {
  if (!at(TokenType::kBlockEnd)) fail_unexpected("the end of the statement block");
  take();
}

bool Parser::at_end_name(Names end_names) const {
  return next_token().type == TokenType::kName &&
         std::find(end_names.begin(), end_names.end(), next_token().text) != end_names.end();
}

Statement Parser::parse_text() {
  Statement statement = start(StatementKind::kText);
  statement.text = take().text;
  return statement;
}

Statement Parser::parse_output() {
  Statement statement = start(StatementKind::kOutput);
  take();
  statement.expressions.push_back(parse_tuple());
  if (!at(TokenType::kVariableEnd)) fail_unexpected("the end of the print statement");
  take();
  return statement;
}

// Statements up to one of the end names, which is left as the current token.
Body Parser::parse_body(Names end_names) {
  const Level level(*this);
  Body body;
  while (!at(TokenType::kEnd)) {
    if (at(TokenType::kData)) {
      body.push_back(parse_text());
    } else if (at(TokenType::kVariableBegin)) {
      body.push_back(parse_output());
    } else if (at_end_name(end_names)) {
      take();
      return body;
    } else {
      take();
      body.push_back(parse_statement());
      end_tag();
    }
  }
  if (end_names.size() > 0) {
    fail_at(current().line, str("the template ends, but a block is open: expected ",
                                quote(*(end_names.end() - 1))));
  }
  return body;
}

// The end of the opening tag, then the body.
Body Parser::parse_block_body(Names end_names) {
  skip_operator(":");
  end_tag();
  return parse_body(end_names);
}

Body Parser::parse_block_to(std::string_view end_name) {
  Body body = parse_block_body({end_name});
  take();
  return body;
}

Statement Parser::parse_statement() {
  static const std::array<std::pair<std::string_view, StatementParser>, 11> kStatements = {{
      {"set", &Parser::parse_set},
      {"for", &Parser::parse_for},
      {"if", &Parser::parse_if},
      {"with", &Parser::parse_with},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"filter", &Parser::parse_filter_block},
      {"generation", &Parser::parse_generation},
      {"print", &Parser::parse_print},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
  }};
  static constexpr std::array<std::string_view, 6> kRejected = {"extends", "include", "import",
                                                                "from",    "block",   "autoescape"};
  const Token& token = current();
  if (token.type != TokenType::kName) fail_unexpected("the name of a tag");
  for (const auto& [name, parse_tag] : kStatements) {
    if (token.text == name) return (this->*parse_tag)();
  }
  if (std::find(kRejected.begin(), kRejected.end(), token.text) != kRejected.end()) {
    fail_at(token.line, str("the tag ", quote(token.text), " is not supported"));
  }
  fail_at(token.line, str("Encountered unknown tag ", quote(token.text)));
}

Target Parser::parse_single_target(bool allows_attribute) {
  static constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none",
                                                                 "True", "False", "None"};
  if (skip_operator("(")) {
    const Level level(*this);
    Target target = parse_target({}, allows_attribute);
    expect_operator(")");
    return target;
  }
  const int line = current().line;
  Target target;
  target.name = expect_name();
  if (std::find(kConstants.begin(), kConstants.end(), target.name) != kConstants.end()) {
    fail_at(line, str("can't assign to ", quote(target.name)));
  }
  if (allows_attribute && skip_operator(".")) target.attribute = expect_name();
  return target;
}

Target Parser::parse_target(std::string_view end_name, bool allows_attribute) {
  Target tuple;
  bool is_tuple = false;
  while (!at_tuple_end(end_name)) {
    tuple.items.push_back(parse_single_target(allows_attribute));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (tuple.items.empty()) fail_unexpected("a name to assign to");
  if (is_tuple) return tuple;
  Target single = std::move(tuple.items[0]);
  return single;
}

Statement Parser::parse_set() {
  Statement statement = start(StatementKind::kSet);
  take();
  statement.targets.push_back(parse_target({}, true));
  if (skip_operator("=")) {
    statement.expressions.push_back(parse_tuple());
    return statement;
  }
  statement.kind = StatementKind::kSetBlock;
  statement.expressions.push_back(parse_filters(nullptr));
  statement.body = parse_block_to("endset");
  return statement;
}

Statement Parser::parse_for() {
  Statement statement = start(StatementKind::kFor);
  take();
  statement.targets.push_back(parse_target("in", false));
  if (!skip_name("in")) fail_unexpected("\"in\"");
  statement.expressions.push_back(parse_tuple(false, "recursive"));
  statement.expressions.push_back(skip_name("if") ? parse_expression() : nullptr);
  if (at_name("recursive")) {
    fail_at(statement.line, "recursive loops are not supported: use a macro that calls itself");
  }
  ++num_open_loops_;
  statement.body = parse_block_body({"else", "endfor"});
  --num_open_loops_;
  if (take().text == "else") statement.otherwise = parse_block_to("endfor");
  return statement;
}

Statement Parser::parse_if() {
  Statement statement = start(StatementKind::kIf);
  std::string tag = "elif";
  while (tag == "elif") {
    take();
    Branch branch;
    branch.condition = parse_tuple(false);
    branch.body = parse_block_body({"elif", "else", "endif"});
    statement.branches.push_back(std::move(branch));
    tag = current().text;
  }
  take();
  if (tag == "else") statement.otherwise = parse_block_to("endif");
  return statement;
}

Statement Parser::parse_with() {
  Statement statement = start(StatementKind::kWith);
  take();
  while (!at(TokenType::kBlockEnd)) {
    if (!statement.targets.empty()) expect_operator(",");
    statement.targets.push_back(parse_target({}, false));
    expect_operator("=");
    statement.expressions.push_back(parse_expression());
  }
  statement.body = parse_block_to("endwith");
  return statement;
}

void Parser::parse_signature(MacroDefinition& macro) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    const int line = current().line;
    std::string name = expect_name();
    if (std::count(macro.parameters.begin(), macro.parameters.end(), name) > 0) {
      fail_at(line, str("the argument ", quote(name), " occurs twice"));
    }
    macro.parameters.push_back(std::move(name));
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fail_at(line, "non-default argument follows default argument");
    }
  }
  expect_operator(")");
}

// A macro is a function of its own: the loops around it cannot be left from inside.
Body Parser::parse_macro_body(MacroDefinition& macro, std::string_view end_name) {
  const int num_outer_loops = std::exchange(num_open_loops_, 0);
  open_macros_.push_back(&macro);
  Body body = parse_block_to(end_name);
  open_macros_.pop_back();
  num_open_loops_ = num_outer_loops;
  return body;
}

Statement Parser::parse_macro() {
  Statement statement = start(StatementKind::kMacro);
  take();
  statement.macro = std::make_unique<MacroDefinition>();
  MacroDefinition& macro = *statement.macro;
  macro.name = expect_name();
  open_macros_.push_back(&macro);
  parse_signature(macro);
  open_macros_.pop_back();
  macro.body = parse_macro_body(macro, "endmacro");
  return statement;
}

Statement Parser::parse_call_block() {
  Statement statement = start(StatementKind::kCallBlock);
  take();
  statement.macro = std::make_unique<MacroDefinition>();
  if (at_operator("(")) parse_signature(*statement.macro);
  statement.expressions.push_back(parse_expression());
  if (statement.expressions[0]->kind != ExpressionKind::kCall) {
    fail_at(statement.line, "expected call");
  }
  statement.macro->body = parse_macro_body(*statement.macro, "endcall");
  return statement;
}

Statement Parser::parse_filter_block() {
  Statement statement = start(StatementKind::kFilterBlock);
  take();
  statement.expressions.push_back(parse_filters(nullptr, true));
  statement.body = parse_block_to("endfilter");
  return statement;
}

// The tag of transformers that marks what the assistant says: it only prints its body here.
Statement Parser::parse_generation() {
  Statement statement = start(StatementKind::kGeneration);
  take();
  const int num_outer_loops = std::exchange(num_open_loops_, 0);
  statement.body = parse_block_to("endgeneration");
  num_open_loops_ = num_outer_loops;
  return statement;
}

Statement Parser::parse_print() {
  Statement statement = start(StatementKind::kOutput);
  take();
  while (!at(TokenType::kBlockEnd)) {
    if (!statement.expressions.empty()) expect_operator(",");
    statement.expressions.push_back(parse_expression());
  }
  return statement;
}

Statement Parser::parse_loop_control() {
  Statement statement = start(at_name("break") ? StatementKind::kBreak : StatementKind::kContinue);
  if (num_open_loops_ == 0) {
    fail_at(statement.line, str(quote(current().text), " outside of a loop"));
  }
  take();
  return statement;
}

}  // namespace

Body parse_template(std::string_view source, int depth_max) {
  return Parser(source, depth_max).parse();
}

}  // namespace halley::jinja
