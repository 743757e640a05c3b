#include "halley/quant/gptq/gptq.h"

#include <array>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/gptq/gptq_settings.h"
#include "halley/quant/gptq/gptq_weight.h"
#include "halley/quant/gptq/tile_weight.h"

namespace halley {
namespace {

class GptqScheme : public QuantScheme {
 public:
  explicit GptqScheme(const QuantConfig& config) : settings_(config) {}

  const char* format_name() const override { return "gptq"; }
  std::string summary() const override;
  std::unique_ptr<StoredWeight> open(const TensorSource& source, const LinearSpec::Part& part,
                                     int64_t in_features) const override;
  std::vector<TensorInfo> expected_tensors(const LinearSpec::Part& part,
                                           int64_t in_features) const override;

 private:
  bool is_stored_quantized(const TensorSource& source, const LinearSpec::Part& part,
                           ConfigSays says) const;

  GptqSettings settings_;
};

std::string GptqScheme::summary() const {
  const GptqLayerSettings& all = settings_.defaults();
  std::string text = str(all.bits, " bits, ");
  text += all.group_size == -1 ? "per-channel" : str("group ", all.group_size);
  if (settings_.storage() == GptqStorage::kTiles || all.is_symmetric == true) text += ", symmetric";
  if (all.is_symmetric == false) text += ", asymmetric";
  if (all.has_act_order == true) text += ", activation order";
  if (settings_.storage() != GptqStorage::kZeroMinusOne) {
    text += str(", ", name_of(settings_.storage()));
  }
  if (settings_.num_rules() > 0) text += str(", ", settings_.num_rules(), " rules for layers");
  return text;
}

bool GptqScheme::is_stored_quantized(const TensorSource& source, const LinearSpec::Part& part,
                                     ConfigSays says) const {
  const std::string dense = dense_weight_name(part);
  const bool has_dense = source.find(dense) != nullptr;
  for (const char* ending : {".qweight", ".B"}) {
    const std::string name = part.name + ending;
    if (source.find(name) == nullptr) continue;
    if (part.expert >= 0) reject_fused_experts(source.description(), part);
    if (!has_dense) return true;
    reject_second_weight(source, part, name);
  }
  // With neither tensor present, the error names the one that the configuration asks for.
  return !has_dense && says == ConfigSays::kQuantized && part.expert < 0;
}

std::unique_ptr<StoredWeight> GptqScheme::open(const TensorSource& source,
                                               const LinearSpec::Part& part,
                                               int64_t in_features) const {
  const GptqSettings::Layer layer = settings_.layer(part);
  const bool is_quantized = is_stored_quantized(source, part, layer.says);
  if (!is_quantized && source.find(dense_weight_name(part)) == nullptr) {
    return open_dense_weight(source, part, in_features);  // names the tensor that is missing
  }
  check_agreement(source, part, layer.says, is_quantized, layer.because);
  if (!is_quantized) return open_dense_weight(source, part, in_features);
  if (settings_.storage() != GptqStorage::kTiles && source.find(part.name + ".B") != nullptr) {
    throw CheckpointError(str(source.description(), ": layer ", quote(part.name),
                              ": expected tensor ", quote(part.name + ".qweight"), ", got ",
                              quote(part.name + ".B"),
                              ", which Marlin tiles have. State checkpoint_format marlin."));
  }
  const GptqLayerSource stored = {.source = source,
                                  .part = part,
                                  .in_features = in_features,
                                  .checkpoint = settings_,
                                  .settings = layer.settings};
  return settings_.storage() == GptqStorage::kTiles ? open_tile_weight(stored)
                                                    : open_gptq_weight(stored);
}

std::vector<TensorInfo> GptqScheme::expected_tensors(const LinearSpec::Part& part,
                                                     int64_t in_features) const {
  const GptqSettings::Layer layer = settings_.layer(part);
  if (layer.says != ConfigSays::kQuantized) {
    return {expected_dense_tensor(part, in_features, DType::kF16)};
  }
  if (part.expert >= 0) reject_fused_experts("configuration", part);
  if (settings_.storage() != GptqStorage::kTiles) {
    return gptq_tensors(part, in_features, layer.settings);
  }
  return tile_tensors(part, in_features, layer.settings, TileNames::kShort);
}

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (config.method != "gptq" && config.method != "marlin") return nullptr;
  return std::make_unique<GptqScheme>(config);
}

constexpr std::array<FormatOption, 5> kOptions = {{
    {"2 bits, with or without act order", option_problem(PackedLayout::kU2Quad, 128)},
    {"3 bits, with or without act order", option_problem(PackedLayout::kU3Quad, 128)},
    {"4 bits, with or without act order", option_problem(PackedLayout::kU4Quad, 128)},
    {"8 bits, with or without act order", option_problem(PackedLayout::kU8Quad, 128)},
    {"4 bits, Marlin tiles", option_problem(PackedLayout::kU4Quad, 128)},
}};

}  // namespace

const QuantFormat kQuantGptq = {.name = "gptq", .detect = detect, .options = kOptions};

}  // namespace halley
