#include "halley/quant/fmpq/fmpq.h"

#include <array>
#include <cmath>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/fmpq/block_weight.h"
#include "halley/quant/stored/dense_list.h"
#include "halley/quant/stored/kv_scheme.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr int64_t kVersion = 1;
constexpr const char* kRequantize = "Quantize the model again with this program.";
constexpr const char* kS4Share = "s4_share";

class FmpqScheme : public QuantScheme {
 public:
  explicit FmpqScheme(const HfConfig& fields)
      : declared_kv_(read_kv_bits(fields)),
        dense_list_(fields, str("field '", field_path(fields, "modules_to_not_convert"),
                                "' does not name it")) {
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
  DeclaredKv declared_kv() const override { return declared_kv_; }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    if (dense_list_.is_quantized(source, part)) return open_block_weight(source, part, in_features);
    if (part.expert < 0) {
      for (const char* suffix : {".scales", ".block_bits", ".activation_clip", ".input_order"}) {
        reject_stray_tensor(source, part, suffix);
      }
    }
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    if (!dense_list_.is_declared_quantized(part)) {
      return {expected_dense_tensor(part, in_features, DType::kF16)};
    }
    return expected_block_tensors(part, in_features);
  }

 private:
  DeclaredKv declared_kv_;
  DenseList dense_list_;
  std::string s4_share_;
};

void require(const HfConfig& fields, const char* field, int64_t expected, const char* advice) {
  if (fields.integer(field, 0, int64_t{1} << 31) == expected) return;
  reject_field(fields, field, str(expected), advice);
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
