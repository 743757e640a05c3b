// Computes a grammar's properties for matchers: which expressions match the empty text, how deep a
// stack each needs, and classes of equivalent bytes. Checks that no rule begins with itself.
#pragma once

#include <string>
#include <vector>

#include "halley/constraint/grammar.h"

namespace halley {

/// Fills in the derived members of a grammar. Time and memory are linear in its size.
class GrammarAnalysis {
 public:
  GrammarAnalysis(Grammar& grammar, const std::string& where) : grammar_(grammar), where_(where) {}

  /// Throws InputError if a rule begins with itself or no text matches.
  void run();

 private:
  void find_users();
  void find_nullable();
  void find_frames();
  int32_t frames_of(ExprId id) const;
  int32_t frames_of_part(const Expr& expr, int32_t index) const;
  void fill_frames_from_part();
  void reject_left_recursion() const;
  int32_t num_first_parts(const Expr& expr) const;
  void find_byte_classes();

  Grammar& grammar_;
  const std::string& where_;
  // The expressions that have expression e as a part: users_[first_user_[e]..first_user_[e + 1]).
  std::vector<ExprId> users_;
  std::vector<size_t> first_user_;
};

}  // namespace halley
