// Combines a grammar and a vocabulary into the engine's constraint.
#pragma once

#include <memory>

#include "halley/constraint/grammar.h"
#include "halley/constraint/mask_memory.h"
#include "halley/constraint/matcher.h"
#include "halley/constraint/token_constraint.h"
#include "halley/constraint/token_trie.h"

namespace halley {

/// Requests that start from the result share the grammar and the masks that they have computed.
/// Memory, at most:
///
/// - limits.memory_bytes_max and one mask;
/// - the same again while a request that met the limit has not continued.
///
/// `memory` bounds several constraints together; null: none. It does not change what requests get.
/// Throws InputError if the limits allow no text at all.
std::shared_ptr<const CompiledConstraint> compile_constraint(
    std::shared_ptr<const TokenTrie> trie, Grammar grammar, const MatcherLimits& limits = {},
    std::shared_ptr<MaskMemory> memory = {});

}  // namespace halley
