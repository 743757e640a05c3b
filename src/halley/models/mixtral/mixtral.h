// Mixtral: Mistral with a mixture of experts in every layer.
#pragma once

#include "halley/models/base/family.h"

namespace halley {

extern const ModelFamily kMixtral;

}  // namespace halley
