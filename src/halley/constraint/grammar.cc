#include "halley/constraint/grammar.h"

#include <map>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/grammar_analysis.h"

namespace halley {

int32_t Grammar::frames_needed(ExprId id, int32_t index) const {
  const Expr& e = expr(id);
  switch (e.kind) {
    case ExprKind::kSequence:
      return index < e.count ? frames_from_part_[static_cast<size_t>(e.first + index)] : 0;
    case ExprKind::kRepeat:
      if (index >= e.min) return 0;
      [[fallthrough]];
    case ExprKind::kBytes:
    case ExprKind::kText:
    case ExprKind::kChoice:
    case ExprKind::kRule:
      break;
  }
  return frames_[static_cast<size_t>(id)];
}

ExprId GrammarBuilder::add(const Expr& expr, size_t num_parts) {
  num_parts_ += num_parts + 1;
  if (num_parts_ > kGrammarPartsMax) {
    throw InputError(str(where_, ": expected a grammar of at most ", kGrammarPartsMax,
                         " parts, got more. Make it smaller: fewer or shorter enums, properties, "
                         "patterns and rules."));
  }
  grammar_.exprs_.push_back(expr);
  return static_cast<ExprId>(grammar_.exprs_.size()) - 1;
}

ExprId GrammarBuilder::bytes(const ByteSet& set) {
  if (set.none()) return nothing();
  const auto [found, is_new] =
      byte_set_ids_.try_emplace(set.to_string(), static_cast<int32_t>(grammar_.byte_sets_.size()));
  if (is_new) grammar_.byte_sets_.push_back(set);
  return add({.kind = ExprKind::kBytes, .first = found->second, .count = 1},
             is_new ? sizeof(ByteSet) : 0);
}

ExprId GrammarBuilder::byte_range(uint8_t first, uint8_t last) {
  ByteSet set;
  for (size_t byte = first; byte <= last; ++byte) set.set(byte);
  return bytes(set);
}

ExprId GrammarBuilder::text(std::string_view bytes) {
  if (bytes.empty()) return empty();
  const ExprId id = add({.kind = ExprKind::kText,
                         .first = static_cast<int32_t>(grammar_.text_.size()),
                         .count = static_cast<int32_t>(bytes.size())},
                        bytes.size());
  grammar_.text_ += bytes;
  return id;
}

ExprId GrammarBuilder::empty() { return add_parts(ExprKind::kSequence, {}); }
ExprId GrammarBuilder::nothing() { return add_parts(ExprKind::kChoice, {}); }

ExprId GrammarBuilder::add_parts(ExprKind kind, std::span<const ExprId> parts) {
  const ExprId id = add({.kind = kind,
                         .first = static_cast<int32_t>(grammar_.parts_.size()),
                         .count = static_cast<int32_t>(parts.size())},
                        parts.size());
  grammar_.parts_.insert(grammar_.parts_.end(), parts.begin(), parts.end());
  return id;
}

ExprId GrammarBuilder::sequence(std::span<const ExprId> parts) {
  return parts.size() == 1 ? parts[0] : add_parts(ExprKind::kSequence, parts);
}
ExprId GrammarBuilder::sequence(std::initializer_list<ExprId> parts) {
  return sequence(std::span(parts.begin(), parts.size()));
}
ExprId GrammarBuilder::choice(std::span<const ExprId> parts) {
  return parts.size() == 1 ? parts[0] : add_parts(ExprKind::kChoice, parts);
}
ExprId GrammarBuilder::choice(std::initializer_list<ExprId> parts) {
  return choice(std::span(parts.begin(), parts.size()));
}

ExprId GrammarBuilder::repeat(ExprId part, int32_t min, int32_t max) {
  HALLEY_CHECK(0 <= min && min <= kRepeatMax && min <= max, min, max);
  if (max == 0) return empty();
  if (min == 1 && max == 1) return part;
  const ExprId id = add_parts(ExprKind::kRepeat, std::span(&part, 1));
  grammar_.exprs_.back().min = min;
  grammar_.exprs_.back().max = max > kRepeatMax ? kUnbounded : max;
  return id;
}

ExprId GrammarBuilder::declare_rule() {
  const ExprId undefined = -1;
  return add_parts(ExprKind::kRule, std::span(&undefined, 1));
}

void GrammarBuilder::define_rule(ExprId rule, ExprId body) {
  const Expr& expr = grammar_.expr(rule);
  HALLEY_CHECK(expr.kind == ExprKind::kRule);
  grammar_.parts_[static_cast<size_t>(expr.first)] = body;
}

Grammar GrammarBuilder::finish(ExprId root) {
  for (const ExprId part : grammar_.parts_) HALLEY_CHECK(part >= 0);
  Grammar grammar = std::move(grammar_);
  *this = GrammarBuilder(where_);
  grammar.where_ = where_;
  grammar.exprs_.shrink_to_fit();
  grammar.parts_.shrink_to_fit();
  grammar.byte_sets_.shrink_to_fit();
  grammar.text_.shrink_to_fit();
  grammar.root_ = root;
  GrammarAnalysis(grammar, where_).run();
  return grammar;
}

}  // namespace halley
