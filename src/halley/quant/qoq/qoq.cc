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
#include "halley/quant/qoq/tiled_weight.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr const char* kRequantize = "Quantize the model again with QServe's settings for W4A8.";

class QoqScheme : public QuantScheme {
 public:
  QoqScheme(bool is_grouped, std::string statement)
      : is_grouped_(is_grouped), statement_(std::move(statement)) {}

  const char* format_name() const override { return kQuantQoq.name; }
  std::string summary() const override {
    return str("4 bits, ", is_grouped_ ? "group 128 of 8-bit scales" : "per output feature",
               ", asymmetric, activations ", ActivationQuant::kS8Token);
  }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    if (part.expert >= 0) {
      refuse_quantized_experts(source, part);
      return open_dense_weight(source, part, in_features);
    }
    const bool is_quantized = source.find(part.name + ".qweight") != nullptr;
    check_agreement(source, part, says_of(part), is_quantized, statement_);
    if (is_quantized) {
      refuse_unstated_tensor(source, part.name + ".weight", "qweight is there");
      return open_tiled_weight(source, part, in_features, is_grouped_);
    }
    refuse_stray_tensor(source, part, ".s1_scales");
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    if (part.expert >= 0 || part.is_usually_dense) {
      return {expected_dense_tensor(part, in_features, DType::kF16)};
    }
    return expected_tiled_tensors(part, in_features, is_grouped_);
  }

 private:
  /// The files have no list of layers left alone.
  static ConfigSays says_of(const Part& part) {
    return part.is_usually_dense ? ConfigSays::kEither : ConfigSays::kQuantized;
  }

  bool is_grouped_;
  std::string statement_;
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
  return std::make_unique<QoqScheme>(group_size != -1,
                                     str("field '", field_path(fields, "wbits"), "' is 4"));
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
