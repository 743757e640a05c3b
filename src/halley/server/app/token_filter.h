// A constraint on single tokens: a list of those that may come, or sequences that must not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "halley/constraint/token_constraint.h"

namespace halley {

struct TokenFilter {
  size_t num_ids = 0;                             // of the vocabulary
  std::vector<int32_t> allowed = {};              // empty: all of them
  std::vector<std::vector<int32_t>> banned = {};  // none empty
};

/// The output ends as it would without the constraint. A banned sequence's last token is not chosen
/// behind its others.
std::shared_ptr<const CompiledConstraint> make_token_constraint(TokenFilter filter);

}  // namespace halley
