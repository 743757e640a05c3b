#include "halley/quant/gguf/gguf.h"

#include <algorithm>
#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/ggml_type.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/gguf/gguf_weight.h"

namespace halley {
namespace {

class GgufScheme : public QuantScheme {
 public:
  const char* format_name() const override { return "gguf"; }
  std::string summary() const override { return "each tensor as the file has it"; }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const LinearSpec::Part& part,
                                     int64_t in_features) const override {
    const TensorInfo* quantized = find_gguf_tensor(source, part);
    if (quantized == nullptr) return open_dense_weight(source, part, in_features);
    if (source.find(dense_weight_name(part)) != nullptr) {
      reject_second_weight(source, part, quantized->name);
    }
    return open_gguf_weight(source, *quantized, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const LinearSpec::Part& part, int64_t) const override {
    throw UnsupportedError(str("layer ", quote(part.name),
                               ": expected a format that dummy weights are made in, got gguf. "
                               "Take gptq or awq for 4 bits in groups."));
  }
};

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource& source) {
  if (config.method != "gguf") return nullptr;
  const auto& infos = source.tensors();
  if (std::any_of(infos.begin(), infos.end(), [](const TensorInfo& info) {
        return ggml_type_of_suffix(info.name) != nullptr;
      })) {
    return std::make_unique<GgufScheme>();
  }
  throw UnsupportedError(str(config.where(), ": \"gguf\": expected a GGUF file, got ",
                             source.description(),
                             ", which has no tensor of its types. Give the GGUF file as MODEL."));
}

constexpr FormatOption option(const char* stored, PackedLayout layout, int64_t group_size,
                              ZeroKind zero_kind) {
  return {stored, option_problem(layout, group_size, ActivationQuant::kNone, zero_kind)};
}

constexpr std::array kOptions = {
    option("Q4_0", PackedLayout::kU4Quad, 32, ZeroKind::kPoint),
    option("Q4_1, Q4_K", PackedLayout::kU4Quad, 32, ZeroKind::kOffset),
    option("Q8_0, Q5_0, IQ4_NL, IQ4_XS, MXFP4", PackedLayout::kU8Quad, 32, ZeroKind::kPoint),
    option("Q5_1, Q5_K", PackedLayout::kU8Quad, 32, ZeroKind::kOffset),
    option("Q6_K", PackedLayout::kU8Quad, 16, ZeroKind::kPoint),
    option("Q3_K", PackedLayout::kU3Quad, 16, ZeroKind::kPoint),
    option("Q2_K", PackedLayout::kU2Quad, 16, ZeroKind::kOffset),
};

}  // namespace

const QuantFormat kQuantGguf = {.name = "gguf", .detect = detect, .options = kOptions};

}  // namespace halley
