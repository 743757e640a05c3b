// From a grammar and a vocabulary to what the engine asks for.
#pragma once

#include <memory>

#include "halley/constraint/grammar.h"
#include "halley/constraint/matcher.h"
#include "halley/constraint/token_constraint.h"
#include "halley/constraint/token_trie.h"

namespace halley {

/// Requests that start from the result share the grammar and the masks that they have met. Memory,
/// at most:
///
/// - limits.memory_bytes_max and one mask;
/// - the same again for as long as a request that met the limit has not gone on.
///
/// Throws InputError where the limits allow no text at all.
std::shared_ptr<const CompiledConstraint> compile_constraint(std::shared_ptr<const TokenTrie> trie,
                                                             Grammar grammar,
                                                             const MatcherLimits& limits = {});

}  // namespace halley
