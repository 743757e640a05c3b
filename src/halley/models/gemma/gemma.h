// Gemma 2 and the text models of Gemma 3.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// Four norms a layer whose weights are offsets from 1, soft caps on scores and logits, and windows
/// on the layers that layer_types names (absent: every second one from layer 0).
///
/// The embedding is scaled by sqrt(hidden_size) rounded to the weights' type, since the models were
/// trained so: in bf16 the rounded factor is part of the model.
extern const ModelFamily kGemma2;
/// Gemma 3: no soft caps by default, norms on queries and keys, one rotary embedding for layers
/// with a window and another for the others (layer_types, or every sliding_window_pattern-th layer
/// is full). kGemma3Text is a text model alone, kGemma3 has one in `text_config`.
extern const ModelFamily kGemma3Text, kGemma3;

}  // namespace halley
