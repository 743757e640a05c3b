// The checks of a step that every decoder makes before running it.
#pragma once

#include <cstdint>

#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"

namespace halley {

/// Throws InputError where a token id is outside the vocabulary or a sequence is longer than
/// max_positions. Ends the process where batch, cache and model do not fit together: a bug of the
/// caller. Ids down to slot_token(num_slots - 1) stand for tokens too.
void check_step(const DecoderConfig& config, const ForwardBatch& batch, const KvCacheView& cache,
                int64_t num_slots = 0);

}  // namespace halley
