#include "halley/constraint/text_grammar.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/char_set.h"
#include "halley/constraint/text_grammar_reader.h"

namespace halley {
namespace {

using Kind = RuleNode::Kind;

// A part: its texts without the empty one, and whether it matches that too. Repetitions need parts
// that are not empty, or an empty text could count.
struct Part {
  ExprId nonempty = 0;
  bool is_nullable = false;
};

class TextGrammarBuilder {
 public:
  TextGrammarBuilder(const TextRules& text, const TextGrammarReader& reader,
                     const std::string& where)
      : text_(text), reader_(reader), where_(where), builder_(where) {}

  Grammar build() {
    is_nullable_ = fixpoint([this](size_t node) { return is_nullable(node); });
    reject_left_recursion();
    is_finite_ = fixpoint([this](size_t node) { return is_finite(node); });
    if (!is_finite_[text_.root]) {
      throw InputError(where_ +
                       ": expected a rule \"root\" that some finite text fulfils, got one "
                       "that always needs itself again.");
    }
    for (size_t i = 0; i < text_.rules.size(); ++i) rules_.push_back(builder_.declare_rule());
    for (size_t i = 0; i < text_.rules.size(); ++i) {
      builder_.define_rule(rules_[i], part_of(text_.rules[i].body).nonempty);
    }
    return builder_.finish(full({rules_[text_.root], is_nullable_[text_.root]}));
  }

 private:
  const RuleNode& node(size_t index) const { return text_.nodes[index]; }

  // The least set of rules that `holds` makes true of their bodies, from none.
  template <typename Function>
  std::vector<bool> fixpoint(Function holds) {
    known_.assign(text_.rules.size(), false);
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t i = 0; i < known_.size(); ++i) {
        if (known_[i] || !holds(text_.rules[i].body)) continue;
        known_[i] = true;
        has_changed = true;
      }
    }
    return known_;
  }

  // Whether the node matches the empty text, where known_ are the rules that do.
  bool is_nullable(size_t index) const {
    const RuleNode& n = node(index);
    const auto is_part_nullable = [this](size_t part) { return is_nullable(part); };
    switch (n.kind) {
      case Kind::kChars:
        return false;
      case Kind::kText:
        return n.text.empty();
      case Kind::kRule:
        return known_[n.rule];
      case Kind::kSequence:
        return std::all_of(n.parts.begin(), n.parts.end(), is_part_nullable);
      case Kind::kChoice:
        return std::any_of(n.parts.begin(), n.parts.end(), is_part_nullable);
      case Kind::kRepeat:
        break;
    }
    return n.min == 0 || is_nullable(n.parts.front());
  }

  // Whether some finite text matches the node, where known_ are the rules of which one does.
  bool is_finite(size_t index) const {
    const RuleNode& n = node(index);
    const auto is_part_finite = [this](size_t part) { return is_finite(part); };
    if (n.kind == Kind::kRule) return known_[n.rule];
    if (n.kind == Kind::kChoice) return std::any_of(n.parts.begin(), n.parts.end(), is_part_finite);
    if (n.kind == Kind::kRepeat && n.min == 0) return true;
    return std::all_of(n.parts.begin(), n.parts.end(), is_part_finite);
  }

  // Adds the rules with which the node may begin; returns whether it matches the empty text. To be
  // called where known_ is is_nullable_.
  bool add_first_rules(size_t index, std::set<size_t>& rules) const {
    const RuleNode& n = node(index);
    switch (n.kind) {
      case Kind::kChars:
      case Kind::kText:
        break;
      case Kind::kRule:
        rules.insert(n.rule);
        break;
      case Kind::kSequence:
        for (const size_t part : n.parts) {
          if (!add_first_rules(part, rules)) return false;
        }
        return true;
      case Kind::kChoice: {
        bool is_any_nullable = false;
        for (const size_t part : n.parts) {
          if (add_first_rules(part, rules)) is_any_nullable = true;
        }
        return is_any_nullable;
      }
      case Kind::kRepeat:
        return add_first_rules(n.parts.front(), rules) || n.min == 0;
    }
    return is_nullable(index);
  }

  void reject_left_recursion() const {
    std::vector<std::set<size_t>> firsts(text_.rules.size());
    for (size_t i = 0; i < firsts.size(); ++i) add_first_rules(text_.rules[i].body, firsts[i]);
    std::vector<Visit> visits(firsts.size(), Visit::kNone);
    for (size_t i = 0; i < firsts.size(); ++i) visit(i, firsts, visits);
  }

  enum class Visit : uint8_t { kNone, kOpen, kDone };
  // As deep as there are rules, of which there are not many.
  void visit(size_t rule, const std::vector<std::set<size_t>>& firsts,
             std::vector<Visit>& visits) const {
    if (visits[rule] == Visit::kDone) return;
    if (visits[rule] == Visit::kOpen) {
      const TextRule& text = text_.rules[rule];
      reader_.reject(str("rules that do not begin with themselves (write ", quote(text.name),
                         " with the recursion at its end, or with *)"),
                     text.first_at);
    }
    visits[rule] = Visit::kOpen;
    for (const size_t first : firsts[rule]) visit(first, firsts, visits);
    visits[rule] = Visit::kDone;
  }

  ExprId full(const Part& part) {
    return part.is_nullable ? builder_.optional(part.nonempty) : part.nonempty;
  }

  Part part_of(size_t index) {
    const RuleNode& n = node(index);
    switch (n.kind) {
      case Kind::kChars:
        return {utf8_char(builder_, n.chars), false};
      case Kind::kText:
        if (n.text.empty()) return {builder_.nothing(), true};
        return {builder_.text(n.text), false};
      case Kind::kRule:
        return {rules_[n.rule], is_nullable_[n.rule]};
      case Kind::kSequence:
        return sequence_of(n);
      case Kind::kChoice:
        return choice_of(n);
      case Kind::kRepeat:
        break;
    }
    return repeat_of(n);
  }

  Part sequence_of(const RuleNode& n) {
    std::vector<Part> parts;
    bool is_all_nullable = true;
    for (const size_t index : n.parts) {
      parts.push_back(part_of(index));
      is_all_nullable = is_all_nullable && parts.back().is_nullable;
    }
    if (!is_all_nullable) {
      std::vector<ExprId> exprs;
      for (const Part& part : parts) exprs.push_back(full(part));
      return {builder_.sequence(exprs), false};
    }
    // The first part that is not empty, and then anything.
    ExprId nonempty = builder_.nothing();
    ExprId rest = builder_.empty();
    for (size_t i = parts.size(); i-- > 0;) {
      nonempty = builder_.choice({builder_.sequence({parts[i].nonempty, rest}), nonempty});
      rest = builder_.sequence({full(parts[i]), rest});
    }
    return {nonempty, true};
  }

  Part choice_of(const RuleNode& n) {
    std::vector<ExprId> exprs;
    bool is_any_nullable = false;
    for (const size_t index : n.parts) {
      const Part part = part_of(index);
      exprs.push_back(part.nonempty);
      is_any_nullable = is_any_nullable || part.is_nullable;
    }
    return {builder_.choice(exprs), is_any_nullable};
  }

  Part repeat_of(const RuleNode& n) {
    if (n.max == 0) return {builder_.nothing(), true};
    const Part part = part_of(n.parts.front());
    const bool is_nullable = part.is_nullable || n.min == 0;
    return {builder_.repeat(part.nonempty, is_nullable ? 1 : n.min, n.max), is_nullable};
  }

  const TextRules& text_;
  const TextGrammarReader& reader_;
  const std::string& where_;
  GrammarBuilder builder_;
  std::vector<bool> known_;  // of the analysis that runs
  std::vector<bool> is_nullable_, is_finite_;
  std::vector<ExprId> rules_;  // their texts that are not empty
};

}  // namespace

Grammar text_grammar(std::string_view text, const std::string& where,
                     const TextGrammarLimits& limits) {
  TextGrammarReader reader(text, where, limits);
  const TextRules rules = reader.read();
  return TextGrammarBuilder(rules, reader, where).build();
}

}  // namespace halley
