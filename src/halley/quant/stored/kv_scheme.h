// The KV cache type that a configuration declares, in the field kv_cache_scheme or kv_bits.
#pragma once

#include "halley/checkpoint/config/hf_config.h"
#include "halley/quant/base/format.h"

namespace halley {

/// The object {type, num_bits, symmetric, strategy, dynamic} of compressed-tensors: 8-bit floats
/// with one scale for keys and one for values of a layer, or nothing where the field is absent.
/// Throws UnsupportedError for other schemes.
DeclaredKv read_kv_cache_scheme(const HfConfig& config);

/// Reads kv_bits, the bits of the KV cache: 16 or absent (kNothing), 8 or 4. Throws
/// UnsupportedError for others.
DeclaredKv read_kv_bits(const HfConfig& config);

}  // namespace halley
