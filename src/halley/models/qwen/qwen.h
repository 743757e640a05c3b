// Qwen2 (and Qwen2.5), Qwen3 and Qwen3-MoE, and the text models of Qwen2-VL, Qwen2.5-VL, Qwen3-VL.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// Llama with biases on q, k and v. With use_sliding_window the layers from max_window_layers on,
/// or those that layer_types names, see `sliding_window` positions.
extern const ModelFamily kQwen2;
/// Llama with a norm on each head's query and key; windows as Qwen2; option attention_bias.
extern const ModelFamily kQwen3;
/// Qwen3 with experts in the layers that decoder_sparse_step and mlp_only_layers leave; a window is
/// on all layers.
extern const ModelFamily kQwen3Moe;
/// A Qwen2 in `text_config` or, as published, in config.json itself. Tokens of text have the same
/// position in all sections of the rotary embedding, which then is a plain one.
extern const ModelFamily kQwen2Vl, kQwen25Vl;
/// The same of a Qwen3 in `text_config`.
extern const ModelFamily kQwen3Vl;

}  // namespace halley
