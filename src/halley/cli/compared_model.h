// A model that `halley compare` is given: MODEL, or MODEL@SETTING,SETTING.
#pragma once

#include <string>

#include "halley/cli/model_options.h"

namespace halley::cli {

/// `defaults` with the model and the settings of `text`: "kv=int8", "precision=low". What follows
/// the last "@" counts as settings where it has a "=". Throws InputError for other settings.
ModelOptions compared_model(const std::string& text, const ModelOptions& defaults);

}  // namespace halley::cli
