#include "halley/constraint/mask_cache.h"

#include <algorithm>

namespace halley {
namespace {

using State = Matcher::State;

bool is_limit(State state) {
  return state == Matcher::kFull || state == Matcher::kTooComplex || state == Matcher::kPaused;
}

void unite(TokenMask& mask, const TokenMask& other) {
  for (size_t word = 0; word < mask.size(); ++word) mask[word] |= other[word];
}

void set_token(TokenMask& mask, int32_t id) {
  mask[static_cast<size_t>(id) / 64] |= uint64_t{1} << (static_cast<size_t>(id) % 64);
}

// The continuation bytes that may follow the lead byte of a character (Unicode, table 3-7).
struct Continuations {
  uint8_t first;
  uint8_t last;
};
Continuations continuations_of(uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

}  // namespace

State MaskCache::next(State state, int32_t token_id) {
  for (const char byte : trie_.bytes_of(token_id)) {
    state = matcher_.next(state, static_cast<uint8_t>(byte));
    if (state < 0) return state;
  }
  return state;
}

bool MaskCache::find(State state, TokenMask& allowed) const {
  const auto found = masks_.find(state);
  if (found == masks_.end()) return false;
  allowed = found->second;
  return true;
}

State MaskCache::fill(State state, TokenMask& allowed, MaskWalk& walk) {
  if (find(state, allowed)) return state;
  const State result = compute(state, allowed, walk);
  if (is_limit(result)) return result;
  if (matcher_.may_end(state)) {
    for (const int32_t id : trie_.eos_token_ids()) set_token(allowed, id);
  }
  masks_.emplace(state, allowed);
  matcher_.add_memory_bytes(allowed.size() * sizeof(uint64_t) + sizeof(TokenMask));
  return state;
}

State MaskCache::compute(State state, TokenMask& allowed, MaskWalk& walk) {
  if (walk.stage == MaskWalk::Stage::kBegin) {
    const State result = begin(state, allowed, walk);
    if (is_limit(result)) return result;
  }
  if (walk.stage == MaskWalk::Stage::kPlain) {
    const State result = walk_trie(trie_.plain(), allowed, walk);
    if (is_limit(result)) return result;
    walk.stage = MaskWalk::Stage::kOther;
    walk.node = 0;
  }
  return walk_trie(trie_.other(), allowed, walk);
}

State MaskCache::begin(State state, TokenMask& allowed, MaskWalk& walk) {
  allowed.assign(trie_.num_mask_words(), 0);
  // While all plain characters lead to one state, a plain token is allowed by its length alone.
  State at = state;
  size_t num_chars = 0;
  while (num_chars < TokenTrie::kPlainCharsMax) {
    const State next = plain_next(at);
    if (is_limit(next)) return next;
    if (next == kMixed) break;
    if (next == Matcher::kDead) break;
    num_chars = next == at ? TokenTrie::kPlainCharsMax : num_chars + 1;
    at = next;
  }
  const bool is_counted =
      num_chars == TokenTrie::kPlainCharsMax || plain_next(at) == Matcher::kDead;
  if (is_counted) unite(allowed, trie_.plain_mask(num_chars));
  walk.stage = is_counted ? MaskWalk::Stage::kOther : MaskWalk::Stage::kPlain;
  walk.node = 0;
  walk.path.assign(TokenTrie::kTokenBytesMax + 1, state);
  return state;
}

// Goes on at walk.node, whose path is known.
State MaskCache::walk_trie(const TokenTrieNodes& trie, TokenMask& allowed, MaskWalk& walk) {
  const auto num_nodes = static_cast<int32_t>(trie.nodes.size()) - 1;
  int32_t& i = walk.node;
  while (i < num_nodes) {
    const TokenTrieNodes::Node& node = trie.nodes[static_cast<size_t>(i)];
    const State next = matcher_.next(walk.path[node.depth - size_t{1}], node.byte);
    if (next < 0) {
      if (is_limit(next)) return next;
      i = node.end;
      continue;
    }
    walk.path[node.depth] = next;
    const int32_t tokens_end = trie.nodes[static_cast<size_t>(i) + 1].first_token;
    for (int32_t t = node.first_token; t < tokens_end; ++t) {
      set_token(allowed, trie.tokens[static_cast<size_t>(t)]);
    }
    ++i;
  }
  return walk.path[0];
}

State MaskCache::plain_next(State state) {
  const auto index = static_cast<size_t>(state);
  if (index >= plain_next_.size()) plain_next_.resize(index + 1, kNotLookedAt);
  if (plain_next_[index] == kNotLookedAt) {
    const State next = compute_plain_next(state);
    if (is_limit(next)) return next;
    plain_next_[index] = next;
  }
  return plain_next_[index];
}

// The common state after `lead` and every continuation, or kMixed.
State MaskCache::shared_next(State state, int num_continuations, uint8_t lead) {
  State next = matcher_.next(state, lead);
  Continuations bytes = continuations_of(lead);
  for (int i = 0; i < num_continuations && next >= 0; ++i) {
    const State first = matcher_.next(next, bytes.first);
    for (int byte = bytes.first + 1; byte <= bytes.last && !is_limit(first); ++byte) {
      const State other = matcher_.next(next, static_cast<uint8_t>(byte));
      if (is_limit(other)) return other;
      if (other != first) return kMixed;
    }
    next = first;
    bytes = {0x80, 0xBF};
  }
  return next;
}

State MaskCache::compute_plain_next(State state) {
  const State shared = matcher_.next(state, ' ');
  if (is_limit(shared)) return shared;
  for (int byte = ' '; byte <= 0xF4; ++byte) {
    const auto lead = static_cast<uint8_t>(byte);
    if (lead == '"' || lead == '\\' || (lead >= 0x80 && lead < 0xC2)) continue;
    const int num_continuations = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    const State next = shared_next(state, num_continuations, lead);
    if (is_limit(next)) return next;
    if (next != shared) return kMixed;
  }
  return shared;
}

}  // namespace halley
