// Detects a checkpoint's format: the table of all formats, and several formats in one model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halley/quant/base/format.h"
#include "halley/quant/base/name_pattern.h"

namespace halley {

/// All formats, in the order in which detect() is called.
std::span<const QuantFormat* const> quant_formats();

/// Layers whose format differs from the one that the checkpoint declares as a whole.
struct QuantOverride {
  NamePattern pattern;  // of the layer's name, "model.layers.0.mlp.up_proj"
  QuantConfig config;   // without fields: full precision
};

/// "PATTERN=VALUE": the pattern a name, a glob or "re:..."; the value `none`, a JSON object as in
/// `quantization_config`, or a file that holds one. Throws InputError.
QuantOverride parse_quant_override(const std::string& text);

/// The one scheme that claims the checkpoint, with the overrides in front of it (the first that
/// matches a layer wins). `quant_method` "mixed" declares overrides in the checkpoint itself:
/// {"quant_method": "mixed", "layers": {PATTERN: {"quant_method": ...}, ...}}, in the order of the
/// file; layers that nothing matches are in full precision. Throws UnsupportedError where no
/// format claims the method, CheckpointError where two do.
std::unique_ptr<QuantScheme> detect_quant_scheme(const QuantConfig& config,
                                                 const TensorSource& source,
                                                 const std::vector<QuantOverride>& overrides = {});

}  // namespace halley
