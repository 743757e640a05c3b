#include "halley/quant/all/formats.h"

#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/none/none.h"

namespace halley {
namespace {

/// All rooms.
const QuantFormat* const kFormats[] = {&kQuantNone};

std::string known_names() {
  std::string names;
  for (const QuantFormat* format : kFormats) {
    names += str(names.empty() ? "" : ", ", format->name);
  }
  return names;
}

/// What config.json says of its quantization, for the message.
std::string stated_method(const HfConfig& config) {
  const auto quantization = config.object("quantization_config");
  return quantization ? quantization->string_or("quant_method", "(no quant_method)") : "(none)";
}

}  // namespace

std::unique_ptr<QuantScheme> detect_quant_scheme(const HfConfig& config,
                                                 const TensorSource& source) {
  std::unique_ptr<QuantScheme> scheme;
  for (const QuantFormat* format : kFormats) {
    std::unique_ptr<QuantScheme> found = format->detect(config, source);
    if (!found) continue;
    if (scheme) {
      throw CheckpointError(str(config.where(), ": expected one quantization format, got ",
                                scheme->format_name(), " and ", found->format_name(),
                                ". State one in quantization_config."));
    }
    scheme = std::move(found);
  }
  if (!scheme) {
    throw UnsupportedError(str(config.where(),
                               ": field 'quantization_config': expected one of the "
                               "supported formats (",
                               known_names(), "), got ", quote(stated_method(config)),
                               ". Use the unquantized checkpoint of this model."));
  }
  return scheme;
}

}  // namespace halley
