// Quantization methods that exist and are unsupported: each is rejected by name, with advice.
#pragma once

#include <span>
#include <string_view>

#include "halley/quant/base/format.h"

namespace halley {

/// One method as configurations name it, in lower case.
struct UnsupportedMethod {
  std::string_view name;
  /// A description for the message: "2:4 sparse weights".
  const char* what;
  const char* advice;
};

std::span<const UnsupportedMethod> unsupported_methods();

/// Claims nothing: throws UnsupportedError that names file, field and method where it is one of
/// unsupported_methods().
extern const QuantFormat kQuantUnsupported;

}  // namespace halley
