#include "halley/quant/none/none.h"

#include <algorithm>
#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_weight.h"

namespace halley {
namespace {

class DenseScheme : public QuantScheme {
 public:
  const char* format_name() const override { return "none"; }
  std::string summary() const override { return "full precision"; }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const LinearSpec::Part& part,
                                     int64_t in_features) const override {
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const LinearSpec::Part& part,
                                           int64_t in_features) const override {
    return {expected_dense_tensor(part, in_features, DType::kF16)};
  }
};

/// Whether this is a tensor of a quantized layer, whose values cannot be interpreted without a
/// declaration.
bool holds_codes(const TensorInfo& info) {
  constexpr std::array<std::string_view, 6> kEndings = {".qweight",          ".qzeros",
                                                        ".weight_packed",    ".weight_scale",
                                                        ".weight_scale_inv", ".weight_upper"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return info.name.ends_with(ending); });
}

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource& source) {
  if (config.fields) return nullptr;
  for (const TensorInfo& info : source.tensors()) {
    if (!holds_codes(info)) continue;
    throw CheckpointError(
        str(source.description(), ": tensor ", quote(info.name),
            ": expected a quantization_config that says what it means, got none in "
            "config.json, quantize_config.json, quant_config.json or "
            "hf_quant_config.json. Add the file that its tool wrote."));
  }
  return make_dense_scheme();
}

constexpr std::array<FormatOption, 3> kOptions = {{
    {"f16", option_problem(PackedLayout::kF16Panel)},
    {"bf16", option_problem(PackedLayout::kBf16PairPanel)},
    {"f32", option_problem(PackedLayout::kF32Panel)},
}};

}  // namespace

std::unique_ptr<QuantScheme> make_dense_scheme() { return std::make_unique<DenseScheme>(); }

const QuantFormat kQuantNone = {.name = "none", .detect = detect, .options = kOptions};

}  // namespace halley
