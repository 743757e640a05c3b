// Token masks of a matcher's states: computed by walking the tries of the vocabulary, and cached.
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
  /// The arguments must outlive this.
  MaskCache(const Grammar& grammar, const TokenTrie& trie, const MatcherLimits& limits)
      : matcher_(grammar, limits), trie_(trie) {}

  Matcher& matcher() { return matcher_; }
  const Matcher& matcher() const { return matcher_; }

  /// Sets the allowed tokens, and EOS if the text may end. Returns `state`, or the limit that was
  /// passed (Matcher::next).
  Matcher::State fill(Matcher::State state, TokenMask& allowed);
  /// The state after the bytes of a token.
  Matcher::State next(Matcher::State state, int32_t token_id);

 private:
  /// Marks that plain characters (token_trie.h) lead to different states.
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
