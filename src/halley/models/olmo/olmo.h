// OLMo 2, OLMo 3 and OLMoE.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// Llama with norms behind the blocks instead of before them, and norms over all heads' queries and
/// keys; option attention_bias.
extern const ModelFamily kOlmo2;
/// OLMo 2 with windows on three of four layers (or as layer_types says). Scaling of the rotary
/// embedding concerns full layers alone.
extern const ModelFamily kOlmo3;
/// Llama with norms over all heads' queries and keys, and experts in every layer. clip_qkv is
/// rejected.
extern const ModelFamily kOlmoe;

}  // namespace halley
