// The declaration "auto-round": files of AutoRound, whose layouts are those of GPTQ and AWQ.
#pragma once

#include <optional>

#include "halley/quant/base/quant_config.h"

namespace halley {

/// The declaration of the same tensors as GPTQ or AWQ has it, where `config` is AutoRound's;
/// nothing where it is another's. README.md has the fields. Throws InputError where a field is
/// wrong or missing, UnsupportedError for other layouts, types and activations.
std::optional<QuantConfig> translate_auto_round(const QuantConfig& config);

}  // namespace halley
