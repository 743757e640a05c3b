#include "halley/constraint/text_grammar.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/char_set.h"
#include "halley/constraint/gbnf_reader.h"
#include "halley/constraint/lark_reader.h"
#include "halley/constraint/pattern.h"

namespace halley {
namespace {

using Kind = RuleNode::Kind;

// Repetitions need parts that are not empty, or an empty text could count.
using Part = PatternPart;

class TextGrammarBuilder {
 public:
  TextGrammarBuilder(TextRules text, const GrammarScanner& scanner, const std::string& where)
      : text_(std::move(text)), scanner_(scanner), where_(where), builder_(where) {}

  Grammar build() {
    read_patterns();
    for (size_t i = 0; i < text_.rules.size(); ++i) repeat_left_recursion(i);
    is_nullable_ = fixpoint([this](size_t node) { return is_nullable(node); });
    reject_left_recursion();
    is_finite_ = fixpoint([this](size_t node) { return is_finite(node); });
    if (!is_finite_[text_.root]) {
      throw InputError(where_ +
                       ": expected a grammar that some finite text fulfils, got one whose first "
                       "rule always needs itself again.");
    }
    for (size_t i = 0; i < text_.rules.size(); ++i) rules_.push_back(builder_.declare_rule());
    for (size_t i = 0; i < text_.rules.size(); ++i) {
      builder_.define_rule(rules_[i], part_of(text_.rules[i].body).nonempty);
    }
    return builder_.finish(full({rules_[text_.root], is_nullable_[text_.root]}));
  }

 private:
  const RuleNode& node(size_t index) const { return text_.nodes[index]; }

  // Patterns are read first, since only then it is known which of them match the empty text.
  void read_patterns() {
    for (size_t i = 0; i < text_.nodes.size(); ++i) {
      const RuleNode& n = node(i);
      if (n.kind != Kind::kPattern) continue;
      const std::string where = str(where_, ": regular expression at ", scanner_.place(n.at));
      patterns_[i] = pattern_part(
          builder_, n.text, {.ignores_case = n.ignores_case, .dot_is_any_char = n.dot_is_any_char},
          where);
    }
  }

  // Whether the node is the rule, or a sequence that begins with it.
  bool begins_with(size_t index, size_t rule) const {
    const RuleNode& n = node(index);
    if (n.kind == Kind::kSequence && !n.parts.empty()) return begins_with(n.parts.front(), rule);
    return n.kind == Kind::kRule && n.rule == rule;
  }

  // a: a x | a y | b | c  becomes  a: (b | c) (x | y)*
  void repeat_left_recursion(size_t rule) {
    const size_t body = text_.rules[rule].body;
    if (node(body).kind != Kind::kChoice) return;
    RuleNode first = {.kind = Kind::kChoice};
    RuleNode rest = {.kind = Kind::kChoice};
    for (const size_t part : std::vector<size_t>(node(body).parts)) {
      if (!begins_with(part, rule)) {
        first.parts.push_back(part);
      } else if (node(part).kind == Kind::kSequence &&
                 node(node(part).parts[0]).kind == Kind::kRule) {
        RuleNode tail = node(part);
        tail.parts.erase(tail.parts.begin());
        rest.parts.push_back(add(std::move(tail)));
      } else {
        return;  // nested deeper, or "a: a": rejected below
      }
    }
    if (rest.parts.empty() || first.parts.empty()) return;
    const size_t tails = add(std::move(rest));
    const size_t more = add({.kind = Kind::kRepeat, .parts = {tails}, .min = 0, .max = kUnbounded});
    const size_t head = add(std::move(first));
    text_.rules[rule].body = add({.kind = Kind::kSequence, .parts = {head, more}});
  }

  size_t add(RuleNode node) {
    text_.nodes.push_back(std::move(node));
    return text_.nodes.size() - 1;
  }

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
      case Kind::kPattern:
        return patterns_.at(index).is_nullable;
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
      case Kind::kPattern:
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
      scanner_.reject(str("rules that do not begin with themselves (write ", quote(text.name),
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
      case Kind::kPattern:
        return patterns_.at(index);
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

  TextRules text_;
  const GrammarScanner& scanner_;
  const std::string& where_;
  GrammarBuilder builder_;
  std::vector<bool> known_;  // of the analysis that runs
  std::vector<bool> is_nullable_, is_finite_;
  std::map<size_t, Part> patterns_;  // by node
  std::vector<ExprId> rules_;        // their texts that are not empty
};

}  // namespace

Grammar text_grammar(std::string_view text, const std::string& where,
                     const TextGrammarLimits& limits) {
  const auto build = [&](auto reader) {
    TextRules rules = reader.read();
    return TextGrammarBuilder(std::move(rules), reader, where).build();
  };
  if (looks_like_lark(text)) return build(LarkReader(text, where, limits));
  return build(GbnfReader(text, where, limits));
}

}  // namespace halley
