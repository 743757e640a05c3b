#include "halley/constraint/intersection.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/matcher.h"

namespace halley {
namespace {

class Intersection {
 public:
  Intersection(GrammarBuilder& builder, std::span<const Grammar> in,
               std::span<const Grammar> not_in)
      : builder_(builder), num_in_(in.size()) {
    const MatcherLimits limits = {.total_steps_max = builder.intersection_budget().num_steps};
    for (const Grammar& grammar : in) matchers_.emplace_back(grammar, limits);
    for (const Grammar& grammar : not_in) matchers_.emplace_back(grammar, limits);
    find_classes();
  }

  ExprId run() {
    States start;
    for (const Matcher& matcher : matchers_) start.push_back(matcher.start());
    const bool is_too_complex =
        std::any_of(start.begin(), start.end(), [](Matcher::State state) { return state < 0; });
    if (is_too_complex) reject();
    const ExprId texts = rule_of(start);
    while (!pending_.empty()) {
      const auto [states, rule] = std::move(pending_.front());
      pending_.pop_front();
      builder_.define_rule(rule, texts_from(states));
      if (num_steps() > builder_.intersection_budget().num_steps) reject();
    }
    builder_.intersection_budget().num_steps -= num_steps();
    return texts;
  }

 private:
  using States = std::vector<Matcher::State>;  // one of each matcher; kDead only for `not_in`

  size_t num_steps() const {
    size_t num_steps = num_lookups_;
    for (const Matcher& matcher : matchers_) num_steps += matcher.num_steps();
    return num_steps;
  }

  [[noreturn]] void reject() const {
    throw UnsupportedError(str(builder_.where(),
                               ": the combination of its pattern, format, length, bounds or "
                               "multiple takes too many states. Make the pattern or one of the "
                               "numbers smaller."));
  }

  // Bytes that no grammar distinguishes.
  void find_classes() {
    std::map<std::vector<int32_t>, ByteSet> classes;
    for (size_t byte = 0; byte < 256; ++byte) {
      std::vector<int32_t> key;
      for (const Matcher& matcher : matchers_) {
        key.push_back(matcher.grammar().class_of(static_cast<uint8_t>(byte)));
      }
      classes[key].set(byte);
    }
    for (const auto& [key, bytes] : classes) {
      size_t first = 0;
      while (!bytes[first]) ++first;
      classes_.emplace_back(static_cast<uint8_t>(first), bytes);
    }
  }

  ExprId rule_of(const States& states) {
    const auto [found, is_new] = rules_.try_emplace(states, 0);
    if (!is_new) return found->second;
    size_t& num_left = builder_.intersection_budget().num_states;
    if (num_left == 0) reject();
    --num_left;
    found->second = builder_.declare_rule();
    pending_.emplace_back(states, found->second);
    return found->second;
  }

  ExprId texts_from(const States& states) {
    num_lookups_ += classes_.size() * matchers_.size();
    std::map<States, ByteSet> targets;
    States next;
    for (const auto& [byte, bytes] : classes_) {
      if (step(states, byte, next)) targets[next] |= bytes;
    }
    std::vector<ExprId> choices;
    if (may_end(states)) choices.push_back(builder_.empty());
    for (const auto& [target, bytes] : targets) {
      choices.push_back(builder_.sequence({builder_.bytes(bytes), rule_of(target)}));
    }
    return builder_.choice(choices);
  }

  bool step(const States& states, uint8_t byte, States& next) {
    next.assign(states.size(), Matcher::kDead);
    for (size_t i = 0; i < states.size(); ++i) {
      if (states[i] == Matcher::kDead) continue;
      next[i] = matchers_[i].next(states[i], byte);
      if (next[i] == Matcher::kFull || next[i] == Matcher::kTooComplex) reject();
      if (next[i] == Matcher::kDead && i < num_in_) return false;
    }
    return true;
  }

  bool may_end(const States& states) const {
    for (size_t i = 0; i < states.size(); ++i) {
      const bool has_text = states[i] != Matcher::kDead && matchers_[i].may_end(states[i]);
      if (has_text != (i < num_in_)) return false;
    }
    return true;
  }

  GrammarBuilder& builder_;
  size_t num_in_;
  std::vector<Matcher> matchers_;
  size_t num_lookups_ = 0;                            // of transitions, which count as steps
  std::vector<std::pair<uint8_t, ByteSet>> classes_;  // a byte of each
  std::map<States, ExprId> rules_;
  std::deque<std::pair<States, ExprId>> pending_;
};

}  // namespace

ExprId intersection_of(GrammarBuilder& builder, std::span<const Grammar> in,
                       std::span<const Grammar> not_in) {
  HALLEY_CHECK(!in.empty());
  return Intersection(builder, in, not_in).run();
}

}  // namespace halley
