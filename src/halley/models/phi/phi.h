// Phi-3 (and Phi-3.5, Phi-4-mini): Llama with fused projections and LongRoPE.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// q, k and v in one tensor, gate and up in another; rotary types default and longrope (which old
/// configurations call "su" or "yarn"), partial_rotary_factor, sliding_window on every layer.
extern const ModelFamily kPhi3;

}  // namespace halley
