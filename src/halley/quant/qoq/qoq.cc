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
#include "halley/quant/stored/dense_list.h"
#include "halley/quant/stored/kv_scheme.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr const char* kRequantize = "Quantize the model again with QServe's settings for W4A8.";

class QoqScheme : public QuantScheme {
 public:
  struct Settings {
    bool is_grouped = false;
    DeclaredKv declared_kv = DeclaredKv::kNothing;
    DenseList dense_list;
  };
  explicit QoqScheme(Settings settings) : settings_(std::move(settings)) {}

  const char* format_name() const override { return kQuantQoq.name; }
  std::string summary() const override {
    return str("4 bits, ",
               settings_.is_grouped ? "group 128 of 8-bit scales" : "per output feature",
               ", asymmetric, activations ", ActivationQuant::kS8Token);
  }

  DeclaredKv declared_kv() const override { return settings_.declared_kv; }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    if (settings_.dense_list.is_quantized(source, part)) {
      return open_tiled_weight(source, part, in_features, settings_.is_grouped);
    }
    if (part.expert < 0) reject_stray_tensor(source, part, ".s1_scales");
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    if (!settings_.dense_list.is_declared_quantized(part)) {
      return {expected_dense_tensor(part, in_features, DType::kF16)};
    }
    return expected_tiled_tensors(part, in_features, settings_.is_grouped);
  }

 private:
  Settings settings_;
};

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields || config.method != kQuantQoq.name) return nullptr;
  const HfConfig& fields = *config.fields;
  if (fields.integer("wbits", 1, 64) != 4) reject_field(fields, "wbits", "4", kRequantize);
  const int64_t group_size = fields.integer("group_size", -1, 1 << 20);
  if (group_size == 0) {
    fail_field(fields, "group_size", str("-1 or ", kTiledGroup),
               "Correct it: the shape of s2_scales tells the size.");
  }
  if (group_size != -1 && group_size != kTiledGroup) {
    reject_field(fields, "group_size", str("-1 or ", kTiledGroup), kRequantize);
  }
  // QServe's own files have no list.
  QoqScheme::Settings settings = {
      .is_grouped = group_size != -1,
      .declared_kv = read_kv_bits(fields),
      .dense_list = DenseList(fields, str("field '", field_path(fields, "wbits"), "' is 4"))};
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
