// For fuzz targets of grammars: a text against a grammar, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/constraint/grammar.h"
#include "halley/constraint/mask_cache.h"

namespace halley {

inline const TokenTrie& byte_trie() {
  static const TokenTrie* const instance = [] {
    std::vector<std::string> pieces = {"<eos>", "{\"",      "\": ", "\",",
                                       "},",    "\xE2\x82", "ab",   "\\u"};
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    return new TokenTrie(std::move(pieces), std::vector<int32_t>{0});
  }();
  return *instance;
}

// Some byte goes on, or the text may end; and the mask says so too.
inline bool check_state(MaskCache& cache, Matcher::State state) {
  TokenMask mask;
  const Matcher::State filled = cache.fill(state, mask);
  if (filled < 0) return false;
  Matcher& matcher = cache.matcher();
  bool may_go_on = false;
  for (int byte = 0; byte < 256; ++byte) {
    const auto next = matcher.next(state, static_cast<uint8_t>(byte));
    if (next == Matcher::kFull || next == Matcher::kTooComplex) return false;
    const auto token_id =
        static_cast<size_t>(byte_trie().num_ids()) - 256 + static_cast<size_t>(byte);
    HALLEY_CHECK((next >= 0) == has_token(mask, token_id), byte, next);
    may_go_on = may_go_on || next >= 0;
  }
  HALLEY_CHECK(may_go_on == matcher.may_go_on(state));
  HALLEY_CHECK(may_go_on || matcher.may_end(state));
  HALLEY_CHECK(matcher.may_end(state) == has_token(mask, 0));
  return true;
}

/// A text that is the beginning of one of the grammar's must be one or have a byte that goes on
/// with it, and masks must agree with the bytes.
inline void check_text(const Grammar& grammar, std::string_view text) {
  constexpr size_t kTextBytesMax = 256;
  // Small limits, so that what passes them is quick.
  const MatcherLimits limits = {.frames_max = 40,
                                .stacks_max = 256,
                                .steps_max = 4096,
                                .memory_bytes_max = 1 << 20,
                                .total_steps_max = 50'000};
  MaskCache cache(grammar, byte_trie(), limits);
  Matcher::State state = cache.matcher().start();
  for (size_t i = 0; state >= 0 && i < text.size() && i < kTextBytesMax; ++i) {
    if (!check_state(cache, state)) break;
    state = cache.matcher().next(state, static_cast<uint8_t>(text[i]));
  }
}

}  // namespace halley
