// A context-free grammar over bytes: expressions that share their parts and may refer to each
// other. It is checked so that a matcher (matcher.h) has bounded work and can always reach the end.
//
// An expression is a number; expressions are made from the bottom up. Recursion goes through rules:
// declare_rule() gives an expression that define_rule() fills later.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halley {

using ByteSet = std::bitset<256>;
using ExprId = int32_t;

/// Largest count of a repetition; an upper bound above it counts as none.
constexpr int32_t kRepeatMax = 1'000'000;
constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();

enum class ExprKind : uint8_t {
  kBytes,     // one byte of a set
  kText,      // these bytes
  kSequence,  // parts one after another
  kChoice,    // one of the parts
  kRepeat,    // the part, min to max times
  kRule,      // what the rule is defined as
};

/// `first` and `count` are a range in one of the grammar's lists: byte sets, text, parts.
struct Expr {
  ExprKind kind = ExprKind::kSequence;
  bool is_nullable = false;
  int32_t first = 0;
  int32_t count = 0;
  int32_t min = 0;
  int32_t max = 0;
};

/// The least number of stack frames that an expression needs to reach its end; more than any limit
/// if it cannot.
constexpr int32_t kNoEnd = std::numeric_limits<int32_t>::max();

/// Immutable; any thread.
class Grammar {
 public:
  const Expr& expr(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
  ExprId root() const { return root_; }
  /// The field or file that describes the grammar, for messages.
  const std::string& where() const { return where_; }
  ExprId part(const Expr& expr, int32_t index) const {
    return parts_[static_cast<size_t>(expr.first + index)];
  }
  const ByteSet& bytes(const Expr& expr) const {
    return byte_sets_[static_cast<size_t>(expr.first)];
  }
  uint8_t text_byte(const Expr& expr, int32_t offset) const {
    return static_cast<uint8_t>(text_[static_cast<size_t>(expr.first + offset)]);
  }

  /// Frames needed from part `index` of the expression on (a count, for a repetition).
  int32_t frames_needed(ExprId id, int32_t index) const;

  /// Bytes that no expression distinguishes have the same class. 0 <= class < num_byte_classes().
  int32_t class_of(uint8_t byte) const { return class_of_[byte]; }
  int32_t num_byte_classes() const { return num_byte_classes_; }

  size_t num_bytes() const {
    return exprs_.size() * (sizeof(Expr) + sizeof(int32_t)) +
           parts_.size() * (sizeof(ExprId) + sizeof(int32_t)) +
           byte_sets_.size() * sizeof(ByteSet) + text_.size();
  }

 private:
  friend class GrammarBuilder;
  friend class GrammarAnalysis;

  std::vector<Expr> exprs_;
  std::vector<ExprId> parts_;
  std::vector<int32_t> frames_from_part_;  // parallel to parts_, for sequences
  std::vector<int32_t> frames_;            // parallel to exprs_
  std::vector<ByteSet> byte_sets_;
  std::string text_;
  std::string where_;
  ExprId root_ = 0;
  std::array<uint8_t, 256> class_of_{};
  int32_t num_byte_classes_ = 1;
};

/// Work of all intersections (intersection.h) of a grammar: about 0.3 s.
struct IntersectionBudget {
  size_t num_states = 32'768;
  size_t num_steps = 3'000'000;
};

/// Not thread-safe. Every method that makes an expression throws InputError if the grammar
/// becomes larger than kGrammarPartsMax.
class GrammarBuilder {
 public:
  /// Expressions, parts and bytes of text together: 32 MB at most.
  static constexpr size_t kGrammarPartsMax = 1'000'000;

  /// `where` begins the message of a grammar that is too large.
  explicit GrammarBuilder(std::string where)
      : where_(std::move(where)), budget_(std::make_shared<IntersectionBudget>()) {}
  /// For a grammar that is a part of another one's making: they share the budget.
  GrammarBuilder(std::string where, const GrammarBuilder& whole)
      : where_(std::move(where)), budget_(whole.budget_) {}

  const std::string& where() const { return where_; }
  IntersectionBudget& intersection_budget() { return *budget_; }

  ExprId bytes(const ByteSet& set);
  ExprId byte_range(uint8_t first, uint8_t last);
  ExprId text(std::string_view bytes);
  ExprId empty();    // the empty text
  ExprId nothing();  // no text at all
  ExprId sequence(std::span<const ExprId> parts);
  ExprId sequence(std::initializer_list<ExprId> parts);
  ExprId choice(std::span<const ExprId> parts);
  ExprId choice(std::initializer_list<ExprId> parts);
  /// 0 <= min <= kRepeatMax, min <= max. The part must not match the empty text.
  ExprId repeat(ExprId part, int32_t min, int32_t max);
  ExprId optional(ExprId part) { return choice({part, empty()}); }

  ExprId declare_rule();
  void define_rule(ExprId rule, ExprId body);

  /// The grammar whose texts are those of `root`. Throws InputError if a rule begins with itself
  /// or no text matches. The builder is empty afterwards.
  Grammar finish(ExprId root);

 private:
  ExprId add(const Expr& expr, size_t num_parts);
  ExprId add_parts(ExprKind kind, std::span<const ExprId> parts);

  std::string where_;
  std::shared_ptr<IntersectionBudget> budget_;
  size_t num_parts_ = 0;
  Grammar grammar_;
  std::map<std::string, int32_t> byte_set_ids_;
};

}  // namespace halley
