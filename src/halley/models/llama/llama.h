// Llama, Mistral and what shares their configuration (Yi), SmolLM3.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// Options: attention_bias, mlp_bias; rotary types of rope_scaling.h.
extern const ModelFamily kLlama;
/// Llama with `sliding_window` on every layer (null: none; absent: 4096, as transformers assumes).
extern const ModelFamily kMistral;
/// The text model of Mistral Small 3.1 and its like: a Mistral in `text_config`.
extern const ModelFamily kMistral3;
/// Llama without rotary embedding in every fourth layer (no_rope_layers, no_rope_layer_interval);
/// with use_sliding_window those layers, or the ones that layer_types names, have a window.
extern const ModelFamily kSmolLm3;

}  // namespace halley
