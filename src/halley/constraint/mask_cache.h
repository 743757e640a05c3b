// Token masks of a matcher's states: computed by walking the tries of the vocabulary, and cached.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "halley/constraint/matcher.h"
#include "halley/constraint/token_constraint.h"
#include "halley/constraint/token_trie.h"

namespace halley {

/// How far the mask of a state has come. Only for the cache that it began with.
struct MaskWalk {
  enum class Stage : uint8_t { kBegin, kPlain, kOther };
  Stage stage = Stage::kBegin;
  int32_t node = 0;                       // of the stage's trie: the next one
  std::vector<Matcher::State> path = {};  // by depth
};

/// A matcher, and masks of its states. Not thread-safe.
class MaskCache {
 public:
  /// The arguments must outlive this.
  MaskCache(const Grammar& grammar, const TokenTrie& trie, const MatcherLimits& limits)
      : matcher_(grammar, limits), trie_(trie) {}

  Matcher& matcher() { return matcher_; }
  const Matcher& matcher() const { return matcher_; }

  /// Sets the allowed tokens, and EOS if the text may end. Returns `state`, or the limit that was
  /// passed (Matcher::next). Of kPaused the same call goes on from where `walk` is.
  Matcher::State fill(Matcher::State state, TokenMask& allowed, MaskWalk& walk);
  Matcher::State fill(Matcher::State state, TokenMask& allowed) {
    MaskWalk walk;
    return fill(state, allowed, walk);
  }
  /// Whether the mask is known; then sets it.
  bool find(Matcher::State state, TokenMask& allowed) const;
  /// The state after the bytes of a token.
  Matcher::State next(Matcher::State state, int32_t token_id);

 private:
  /// Marks that plain characters (token_trie.h) lead to different states.
  static constexpr Matcher::State kMixed = -5;
  static constexpr Matcher::State kNotLookedAt = -6;

  Matcher::State compute(Matcher::State state, TokenMask& allowed, MaskWalk& walk);
  Matcher::State begin(Matcher::State state, TokenMask& allowed, MaskWalk& walk);
  Matcher::State walk_trie(const TokenTrieNodes& trie, TokenMask& allowed, MaskWalk& walk);
  Matcher::State plain_next(Matcher::State state);
  Matcher::State compute_plain_next(Matcher::State state);
  Matcher::State shared_next(Matcher::State state, int num_continuations, uint8_t lead);

  Matcher matcher_;
  const TokenTrie& trie_;
  std::unordered_map<Matcher::State, TokenMask> masks_;
  std::vector<Matcher::State> plain_next_;  // by state
};

}  // namespace halley
