// What a configuration states of the KV cache in the field kv_cache_scheme.
#pragma once

#include "halley/checkpoint/config/hf_config.h"
#include "halley/quant/base/format.h"

namespace halley {

/// The object {type, num_bits, symmetric, strategy, dynamic} of compressed-tensors: 8-bit floats
/// with one scale for keys and one for values of a layer, or nothing where the field is absent.
/// Throws UnsupportedError for other schemes.
StatedKv read_kv_cache_scheme(const HfConfig& config);

}  // namespace halley
