// How often a part repeats, as regular expressions and grammars write it.
#pragma once

#include <cstdint>
#include <optional>

#include "halley/constraint/grammar.h"

namespace halley {

struct RepeatCount {
  int32_t min = 0;
  int32_t max = 0;  // kUnbounded
};

/// The count of '*', '+' or '?'; nothing for any other sign.
inline std::optional<RepeatCount> count_of_sign(char sign) {
  switch (sign) {
    case '*':
      return RepeatCount{0, kUnbounded};
    case '+':
      return RepeatCount{1, kUnbounded};
    case '?':
      return RepeatCount{0, 1};
    default:
      return std::nullopt;
  }
}

}  // namespace halley
