// Names of the parts of a split GGUF file: "NAME-00002-of-00005.gguf".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace halley {

struct GgufSplitName {
  std::string prefix;  // what all parts begin with: "NAME"
  int number = 1;      // from 1
  int count = 1;

  bool operator==(const GgufSplitName&) const = default;
};

/// Nothing for a name of another form. `name` may have folders before it.
std::optional<GgufSplitName> parse_gguf_split_name(std::string_view name);

/// The name of a part: the inverse of parse_gguf_split_name().
std::string gguf_split_name(const GgufSplitName& part);

}  // namespace halley
