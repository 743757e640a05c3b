// Granite and its mixtures of experts.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// Llama with factors on embeddings, attention scores, the blocks' outputs and logits; options
/// attention_bias, mlp_bias.
extern const ModelFamily kGranite;
/// Granite with experts in every layer, all in one tensor; option attention_bias.
extern const ModelFamily kGraniteMoe;

}  // namespace halley
