// The settings of Metaspace, which is a pre-tokenizer and a decoder.
#pragma once

#include <string>

#include "halley/checkpoint/tokenizer/component.h"

namespace halley {

enum class PrependScheme { kFirst, kAlways, kNever };

struct MetaspaceConfig {
  std::string replacement;  // one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};

/// Throws InputError.
MetaspaceConfig parse_metaspace(const Component& config);

}  // namespace halley
