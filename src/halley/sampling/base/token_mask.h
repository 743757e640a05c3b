// A set of token ids as bits: the tokens that a constraint allows and a sampler may choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halley {

/// Token t is bit t % 64 of word t / 64. Ids behind the end are not in the set.
using TokenMask = std::vector<uint64_t>;

/// A choice from the logits that wait at a sampler's slot, among the tokens of the mask.
struct MaskedChoice {
  int32_t slot = 0;
  const TokenMask* allowed = nullptr;
};

inline bool has_token(const TokenMask& mask, size_t token_id) {
  return token_id / 64 < mask.size() && (mask[token_id / 64] >> (token_id % 64) & 1) != 0;
}

}  // namespace halley
