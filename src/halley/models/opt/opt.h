// OPT: learned positions, LayerNorm with bias, an ungated MLP.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

/// Rejected: do_layer_norm_before false and word_embed_proj_dim != hidden_size (both: OPT-350m),
/// norms without parameters, no final norm.
extern const ModelFamily kOpt;

}  // namespace halley
