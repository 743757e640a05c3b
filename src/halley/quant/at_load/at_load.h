// Quantization at load: a checkpoint in full precision is rounded to low precision while its
// weights are packed, layer by layer, without a file and without calibration.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "halley/core/packed_weight.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/quant_config.h"

namespace halley {

/// One way to round: a row of the table.
struct AtLoadMethod {
  const char* name;         // "int4-rtn"
  const char* description;  // "8 bits per channel, weights alone"
  PackedLayout layout;
  ActivationQuant activation = ActivationQuant::kNone;
  int64_t group_size = 0;  // 0: per-channel
  bool is_symmetric = true;
};

std::span<const AtLoadMethod> at_load_methods();

/// Claims the declaration {"quant_method": "at_load", "method": NAME} and, for methods with groups,
/// "group_size" (a power of two from 32 to 1024, or absent). Layers that tools usually leave in
/// full precision stay so: the output layer, the routers of experts.
///
/// Rounding is that of `halley quantize` without calibration: integers to nearest on a min-max grid
/// (make_minmax_rule), e4m3 with per-channel scales (e4m3_scale()), and f16 in two planes,
/// which is exact; there layers with a weight beyond 1.75 stay in full precision, and say so. A
/// group that does not divide the inputs is halved until it does, down to 32; otherwise the last
/// one is shorter.
extern const QuantFormat kQuantAtLoad;

/// The declaration of a method. Throws InputError that lists the names for another one.
QuantConfig at_load_config(std::string_view method);

}  // namespace halley
