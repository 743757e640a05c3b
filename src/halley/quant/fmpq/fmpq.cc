#include "halley/quant/fmpq/fmpq.h"

#include <array>
#include <cmath>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/base/name_pattern.h"
#include "halley/quant/fmpq/block_weight.h"
#include "halley/quant/stored/kv_scheme.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr int64_t kVersion = 1;
constexpr const char* kRequantize = "Quantize the model again with this program.";
constexpr const char* kDenseLayers = "modules_to_not_convert";
constexpr const char* kS4Share = "s4_share";

class FmpqScheme : public QuantScheme {
 public:
  explicit FmpqScheme(const HfConfig& fields)
      : stated_kv_(read_kv_bits(fields)), list_path_(field_path(fields, kDenseLayers)) {
    const std::string where = str(fields.where(), ": field '", list_path_, "'");
    for (const std::string& text : fields.strings(kDenseLayers)) {
      dense_layers_.push_back(NamePattern::parse(text, where));
    }
    if (!fields.has(kS4Share)) return;
    const double share = fields.number(kS4Share);
    if (!(share >= 0 && share <= 1)) {
      fail_field(fields, kS4Share, "a number from 0 to 1", "Correct or remove it.");
    }
    s4_share_ = str(" (", std::round(1000 * share) / 10, " % of the work in 4 bits)");
  }

  const char* format_name() const override { return kQuantFmpq.name; }
  std::string summary() const override {
    return str("4 bits, group ", kFmpqBlock, ", symmetric, activations ",
               ActivationQuant::kS4S8Block128, s4_share_);
  }
  StatedKv stated_kv() const override { return stated_kv_; }

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
      return open_block_weight(source, part, in_features);
    }
    for (const char* suffix : {".scales", ".block_bits", ".activation_clip", ".input_order"}) {
      refuse_stray_tensor(source, part, suffix);
    }
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    if (part.expert >= 0 || verdict_of(part).says != ConfigSays::kQuantized) {
      return {expected_dense_tensor(part, in_features, DType::kF16)};
    }
    return expected_block_tensors(part, in_features);
  }

 private:
  struct Verdict {
    ConfigSays says = ConfigSays::kQuantized;
    std::string because;
  };
  Verdict verdict_of(const Part& part) const {
    for (const NamePattern& pattern : dense_layers_) {
      if (!pattern.matches(part.name)) continue;
      return {ConfigSays::kDense, str("field '", list_path_, "' holds ", quote(pattern.text()))};
    }
    if (part.is_usually_dense) return {.says = ConfigSays::kEither, .because = {}};
    return {.because = str("field '", list_path_, "' does not name it")};
  }

  StatedKv stated_kv_;
  std::string list_path_;
  std::vector<NamePattern> dense_layers_;
  std::string s4_share_;
};

void require(const HfConfig& fields, const char* field, int64_t expected, const char* advice) {
  if (fields.integer(field, 0, int64_t{1} << 31) == expected) return;
  refuse_field(fields, field, str(expected), advice);
}

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields || config.method != kQuantFmpq.name) return nullptr;
  const HfConfig& fields = *config.fields;
  require(fields, "version", kVersion, "Update this program, or quantize the model again with it.");
  require(fields, "bits", 4, kRequantize);
  require(fields, "group_size", kFmpqBlock, kRequantize);
  return std::make_unique<FmpqScheme>(fields);
}

constexpr std::array<FormatOption, 1> kOptions = {{
    {"4 bits, groups of 128",
     option_problem(PackedLayout::kU4Quad, kFmpqBlock, ActivationQuant::kS4S8Block128)},
}};

}  // namespace

const QuantFormat kQuantFmpq = {.name = "fmpq", .detect = detect, .options = kOptions};

}  // namespace halley
