#include "halley/checkpoint/tokenizer/metaspace.h"

#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {

MetaspaceConfig parse_metaspace(const Component& config) {
  MetaspaceConfig result;
  append_utf8(result.replacement, config.character("replacement"));
  const std::string scheme = config.text_or("prepend_scheme", "always");
  if (scheme == "first") {
    result.scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    result.scheme = PrependScheme::kNever;
  } else if (scheme != "always") {
    config.fail("prepend_scheme", "\"first\", \"always\" or \"never\"");
  }
  // The older form of the same setting.
  if (!config.boolean_or("add_prefix_space", true)) {
    if (config.find("prepend_scheme") != nullptr && result.scheme != PrependScheme::kNever) {
      config.fail("prepend_scheme", "\"never\", since add_prefix_space is false");
    }
    result.scheme = PrependScheme::kNever;
  }
  result.split = config.boolean_or("split", true);
  return result;
}

}  // namespace halley
