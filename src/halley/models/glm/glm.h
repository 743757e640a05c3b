// GLM-4 (9B and 32B, dense).
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// GLM-4 9B of 2024 (glm-4-9b-hf): Llama with a rotary embedding that turns neighbouring columns of
/// half of each head, gate and up stored fused; option attention_bias (q, k and v alone).
extern const ModelFamily kGlm;
/// GLM-4 of 2025 (GLM-4-0414, GLM-Z1): as kGlm, with norms behind the blocks too.
extern const ModelFamily kGlm4;

}  // namespace halley
