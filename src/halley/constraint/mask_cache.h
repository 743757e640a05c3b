// The tokens that may follow a state of a matcher: tries walked against it, results kept.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "halley/constraint/matcher.h"
#include "halley/constraint/token_constraint.h"
#include "halley/constraint/token_trie.h"

namespace halley {

/// A matcher, and masks of its states. Not thread-safe.
class MaskCache {
 public:
  /// What is given must outlive this.
  MaskCache(const Grammar& grammar, const TokenTrie& trie, const MatcherLimits& limits)
      : matcher_(grammar, limits), trie_(trie) {}

  Matcher& matcher() { return matcher_; }
  const Matcher& matcher() const { return matcher_; }

  /// Tokens that may follow, and EOS where the text may end. Returns `state`, or what Matcher::next
  /// says of a limit.
  Matcher::State fill(Matcher::State state, TokenMask& allowed);
  /// The state behind the bytes of a token.
  Matcher::State next(Matcher::State state, int32_t token_id);

 private:
  /// Plain characters (token_trie.h) lead to different states.
  static constexpr Matcher::State kMixed = -5;
  static constexpr Matcher::State kNotLookedAt = -6;

  Matcher::State compute(Matcher::State state, TokenMask& allowed);
  Matcher::State walk(const TokenTrieNodes& trie, Matcher::State state, TokenMask& allowed);
  Matcher::State plain_next(Matcher::State state);
  Matcher::State compute_plain_next(Matcher::State state);
  Matcher::State shared_next(Matcher::State state, int num_continuations, uint8_t lead);

  Matcher matcher_;
  const TokenTrie& trie_;
  std::unordered_map<Matcher::State, TokenMask> masks_;
  std::vector<Matcher::State> plain_next_;  // by state
  std::vector<Matcher::State> path_;        // of walk(), by depth
};

}  // namespace halley
