#include "halley/quant/base/written_format.h"

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

std::string describe(int bits, int64_t group_size, bool is_symmetric) {
  return str(bits, " bits, ", group_size == 0 ? "per-channel" : str("group ", group_size),
             is_symmetric ? ", symmetric" : ", asymmetric");
}

}  // namespace

std::vector<std::string> dense_layers(const WrittenFormat& format) {
  std::vector<std::string> names = {kOutputLayer};
  for (const WrittenLayer& layer : format.layers) {
    if (!layer.is_quantized && layer.name != kOutputLayer) names.push_back(layer.name);
  }
  return names;
}

bool has_own_settings(const WrittenFormat& format, const WrittenLayer& layer) {
  return layer.is_quantized &&
         (layer.bits != format.bits || layer.group_size != format.group_size ||
          layer.is_symmetric != format.is_symmetric);
}

void reject_own_settings(const WrittenFormat& format, const char* format_name) {
  for (const WrittenLayer& layer : format.layers) {
    if (!has_own_settings(format, layer)) continue;
    throw UnsupportedError(
        str("layer ", quote(layer.name), ": expected the settings of the whole model in ",
            format_name, " (", describe(format.bits, format.group_size, format.is_symmetric),
            "), got ", describe(layer.bits, layer.group_size, layer.is_symmetric),
            ". Leave the layer out, or choose a format with settings for each layer."));
  }
}

}  // namespace halley
