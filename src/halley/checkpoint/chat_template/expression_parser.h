// The part of the parser that reads expressions. The grammar and its precedences are Jinja's,
// which differ from Python's here and there: ** is left-associative, filters and tests bind
// tighter than every operator.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/checkpoint/chat_template/ast.h"
#include "halley/checkpoint/chat_template/lexer.h"

namespace halley::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, int depth_max)
      : tokens_(std::move(tokens)), depth_max_(depth_max) {}

  // One level of nesting, while it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[position_]; }
  const Token& next_token() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  bool at(TokenType type) const { return current().type == type; }
  bool at_operator(std::string_view op) const;
  bool at_name(std::string_view name) const;
  const Token& take();
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  std::string expect_name();
  [[noreturn]] void fail_at(int line, const std::string& message) const;
  [[noreturn]] void fail_unexpected(std::string_view expected) const;

  ExpressionPtr parse_expression(bool with_conditional = true);
  /// One expression, or several divided by commas as a tuple. `end_name` ends it too.
  ExpressionPtr parse_tuple(bool with_conditional = true, std::string_view end_name = {},
                            bool is_in_parentheses = false);
  /// The filters behind `operand`, which is null at the start of a filter block.
  ExpressionPtr parse_filters(ExpressionPtr operand, bool starts_inline = false);
  bool at_tuple_end(std::string_view end_name) const;
  static ExpressionPtr make(ExpressionKind kind, int line);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
  int depth_max_;
  // The macros around this place: they learn which special names their bodies use.
  std::vector<MacroDefinition*> open_macros_;

 private:
  ExpressionPtr checked(ExpressionPtr node) const;
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_term();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_subscribed();
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  std::unique_ptr<ArgumentList> parse_arguments();
  bool parse_star_argument(ArgumentList& arguments, int line);
  std::string parse_dotted_name();
};

}  // namespace halley::jinja
