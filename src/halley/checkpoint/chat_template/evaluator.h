// Renders the statements of a template and evaluates its expressions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/chat_template/ast.h"
#include "halley/checkpoint/chat_template/runtime.h"
#include "halley/checkpoint/chat_template/scope.h"

namespace halley::jinja {

class Evaluator {
 public:
  explicit Evaluator(Runtime& runtime) : runtime_(runtime) {}

  /// Appends what `body` prints to `out`.
  void render(const Body& body, const std::shared_ptr<Scope>& scope, OutputBuffer& out);

 private:
  using ScopePtr = std::shared_ptr<Scope>;

  enum class Flow { kNext, kBreak, kContinue };

  // One evaluation inside another, while it lives; limits the use of the stack.
  class Frame {
   public:
    explicit Frame(Runtime& runtime);
    ~Frame() { --runtime_.num_frames; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Runtime& runtime_;
  };

  // statements (statements.cc)
  Flow execute(const Body& body, const ScopePtr& scope, OutputBuffer& out);
  Flow execute(const Statement& statement, const ScopePtr& scope, OutputBuffer& out);
  Flow execute_if(const Statement& statement, const ScopePtr& scope, OutputBuffer& out);
  Flow execute_for(const Statement& statement, const ScopePtr& scope, OutputBuffer& out);
  Flow execute_set_block(const Statement& statement, const ScopePtr& scope);
  Flow execute_filter_block(const Statement& statement, const ScopePtr& scope, OutputBuffer& out);
  Flow execute_with(const Statement& statement, const ScopePtr& scope, OutputBuffer& out);
  void execute_call_block(const Statement& statement, const ScopePtr& scope, OutputBuffer& out);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);
  Value make_macro(const MacroDefinition& definition, const ScopePtr& scope);

  // expressions (evaluator.cc)
  Value evaluate(const Expression& node, const ScopePtr& scope);
  Value evaluate_inner(const Expression& node, const ScopePtr& scope);
  Value evaluate_name(const Expression& node, const ScopePtr& scope);
  std::vector<Value> evaluate_all(const Expression& node, const ScopePtr& scope);
  Value evaluate_dict(const Expression& node, const ScopePtr& scope);
  Value evaluate_arithmetic(const Expression& node, const ScopePtr& scope);
  Value evaluate_concat(const Expression& node, const ScopePtr& scope);
  Value evaluate_logic(const Expression& node, const ScopePtr& scope);
  Value evaluate_compare(const Expression& node, const ScopePtr& scope);
  bool compare(Comparison comparison, const Value& left, const Value& right);
  Value evaluate_conditional(const Expression& node, const ScopePtr& scope);
  Value evaluate_slice(const Expression& node, const ScopePtr& scope);

  // calls (calls.cc)
  Value evaluate_call(const Expression& node, const ScopePtr& scope,
                      std::optional<Value> caller = std::nullopt);
  Value evaluate_filter(const Expression& node, const ScopePtr& scope,
                        const Value* block_text = nullptr);
  Value evaluate_test(const Expression& node, const ScopePtr& scope);
  Arguments evaluate_arguments(const Expression& node, const ScopePtr& scope);
  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const MacroPayload& macro, Arguments arguments);
  void bind_parameters(const MacroDefinition& definition, Arguments& arguments,
                       const ScopePtr& scope);

  Runtime& runtime_;
};

}  // namespace halley::jinja
