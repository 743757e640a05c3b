// A token with its log-probability.
#pragma once

#include <cstdint>

namespace halley {

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;  // natural logarithm
};

}  // namespace halley
