#include "halley/quant/qoq/qoq.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/base/name_pattern.h"
#include "halley/quant/qoq/tiled_weight.h"
#include "halley/quant/stored/kv_scheme.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr const char* kRequantize = "Quantize the model again with QServe's settings for W4A8.";

class QoqScheme : public QuantScheme {
 public:
  /// Field paths are for messages.
  struct Settings {
    bool is_grouped = false;
    StatedKv stated_kv = StatedKv::kNothing;
    std::vector<NamePattern> dense_layers;
    std::string bits_path, list_path;
  };
  explicit QoqScheme(Settings settings) : settings_(std::move(settings)) {}

  const char* format_name() const override { return kQuantQoq.name; }
  std::string summary() const override {
    return str("4 bits, ",
               settings_.is_grouped ? "group 128 of 8-bit scales" : "per output feature",
               ", asymmetric, activations ", ActivationQuant::kS8Token);
  }

  StatedKv stated_kv() const override { return settings_.stated_kv; }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    if (part.expert >= 0) {
      refuse_quantized_experts(source, part);
      return open_dense_weight(source, part, in_features);
    }
    const bool is_quantized = source.find(part.name + ".qweight") != nullptr;
    const Verdict verdict = verdict_of(part);
    check_agreement(source, part, verdict.says, is_quantized, verdict.because);
    if (is_quantized) {
      refuse_unstated_tensor(source, part.name + ".weight", "qweight is there");
      return open_tiled_weight(source, part, in_features, settings_.is_grouped);
    }
    refuse_stray_tensor(source, part, ".s1_scales");
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    if (part.expert >= 0 || verdict_of(part).says != ConfigSays::kQuantized) {
      return {expected_dense_tensor(part, in_features, DType::kF16)};
    }
    return expected_tiled_tensors(part, in_features, settings_.is_grouped);
  }

 private:
  struct Verdict {
    ConfigSays says = ConfigSays::kQuantized;
    std::string because;
  };
  Verdict verdict_of(const Part& part) const {
    for (const NamePattern& pattern : settings_.dense_layers) {
      if (!pattern.matches(part.name)) continue;
      return {ConfigSays::kDense,
              str("field '", settings_.list_path, "' holds ", quote(pattern.text()))};
    }
    // QServe's own files have no list.
    if (part.is_usually_dense) return {.says = ConfigSays::kEither, .because = {}};
    return {.because = str("field '", settings_.bits_path, "' is 4")};
  }

  Settings settings_;
};

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields || config.method != kQuantQoq.name) return nullptr;
  const HfConfig& fields = *config.fields;
  if (fields.integer("wbits", 1, 64) != 4) refuse_field(fields, "wbits", "4", kRequantize);
  const int64_t group_size = fields.integer("group_size", -1, 1 << 20);
  if (group_size == 0) {
    fail_field(fields, "group_size", str("-1 or ", kTiledGroup),
               "Correct it: the shape of s2_scales tells the size.");
  }
  if (group_size != -1 && group_size != kTiledGroup) {
    refuse_field(fields, "group_size", str("-1 or ", kTiledGroup), kRequantize);
  }
  QoqScheme::Settings settings = {.is_grouped = group_size != -1,
                                  .stated_kv = read_kv_bits(fields),
                                  .dense_layers = {},
                                  .bits_path = field_path(fields, "wbits"),
                                  .list_path = field_path(fields, "modules_to_not_convert")};
  const std::string where = str(fields.where(), ": field '", settings.list_path, "'");
  for (const std::string& text : fields.strings("modules_to_not_convert")) {
    settings.dense_layers.push_back(NamePattern::parse(text, where));
  }
  return std::make_unique<QoqScheme>(std::move(settings));
}

constexpr std::array<FormatOption, 2> kOptions = {{
    {"4 bits per channel", option_problem(PackedLayout::kU4Quad, kOptionSize,
                                          ActivationQuant::kS8Token, ZeroKind::kOffset)},
    {"4 bits, groups of 128",
     option_problem(PackedLayout::kU4Quad, 128, ActivationQuant::kS8Token, ZeroKind::kOffset)},
}};

}  // namespace

const QuantFormat kQuantQoq = {.name = "qoq", .detect = detect, .options = kOptions};

}  // namespace halley
