// A model argument of `halley compare`: MODEL, or MODEL@SETTING,SETTING.
#pragma once

#include <string>

#include "halley/cli/model_options.h"

namespace halley::cli {

/// `defaults` with the model and the settings of `text`: "kv=int8", "precision=low". The
/// text after the last "@" is settings if it has a "=". Throws InputError for other settings.
ModelOptions compared_model(const std::string& text, const ModelOptions& defaults);

}  // namespace halley::cli
