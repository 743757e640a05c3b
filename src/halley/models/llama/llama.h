// Llama, Mistral and what shares their configuration (Yi).
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// Options: attention_bias, mlp_bias; rotary types of rope_scaling.h.
extern const ModelFamily kLlama;
/// Llama with `sliding_window` on every layer (null: none; absent: 4096, as transformers assumes).
extern const ModelFamily kMistral;

}  // namespace halley
