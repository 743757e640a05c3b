#include "halley/quant/nestedfp/nestedfp.h"

#include <array>
#include <limits>
#include <set>
#include <utility>

#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/nestedfp/nested_weight.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

class NestedFpScheme : public QuantScheme {
 public:
  NestedFpScheme(std::set<std::string, std::less<>> exceptions, std::string list_name)
      : exceptions_(std::move(exceptions)), list_name_(std::move(list_name)) {}

  const char* format_name() const override { return kQuantNestedFp.name; }
  std::string summary() const override {
    return str("f16 and e4m3 in one weight, ", exceptions_.size(), " layers in one precision");
  }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    const bool has_planes = has_nested_planes(source, part);
    if (part.expert >= 0) {
      if (has_planes) reject_fused_experts(source.description(), part);
      reject_quantized_experts(source, part);
      return open_dense_weight(source, part, in_features);
    }
    const bool is_exception = exceptions_.contains(part.name);
    check_agreement(
        source, part, is_exception ? ConfigSays::kDense : ConfigSays::kQuantized, has_planes,
        str("field '", list_name_, "' ", is_exception ? "names" : "does not name", " it"));
    if (has_planes) return open_nested_weight(source, part, in_features);
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    if (part.expert >= 0 || exceptions_.contains(part.name)) {
      return {expected_dense_tensor(part, in_features, DType::kF16)};
    }
    return expected_nested_tensors(part, in_features);
  }

 private:
  std::set<std::string, std::less<>> exceptions_;
  std::string list_name_;
};

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields || config.method != kQuantNestedFp.name) return nullptr;
  const HfConfig& fields = *config.fields;
  if (fields.integer("version", 1, std::numeric_limits<int32_t>::max()) != kNestedVersion) {
    reject_field(fields, "version", str(kNestedVersion),
                 "Use a newer version of this program, or convert the model again.");
  }
  std::vector<std::string> names = fields.strings("exceptions");
  return std::make_unique<NestedFpScheme>(
      std::set<std::string, std::less<>>(names.begin(), names.end()),
      field_path(fields, "exceptions"));
}

constexpr std::array<FormatOption, 5> kOptions = {{
    {"f16 as two planes, full precision", option_problem(PackedLayout::kNestedF16Quad)},
    {"the same, low precision", low_problem(option_problem(PackedLayout::kNestedF16Quad))},
    {"exception layers in f16", option_problem(PackedLayout::kF16Panel)},
    {"exception layers beyond f16, in bf16", option_problem(PackedLayout::kBf16PairPanel)},
    {"exception layers beyond f16, in f32", option_problem(PackedLayout::kF32Panel)},
}};

}  // namespace

const QuantFormat kQuantNestedFp = {.name = "nestedfp", .detect = detect, .options = kOptions};

}  // namespace halley
