#include "halley/quant/bitsandbytes/bitsandbytes.h"

#include <array>
#include <memory>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/bitsandbytes/int8_weight.h"
#include "halley/quant/bitsandbytes/table_weight.h"

namespace halley {
namespace {

constexpr const char* kName = "bitsandbytes";

class BitsAndBytesScheme : public QuantScheme {
 public:
  explicit BitsAndBytesScheme(bool has_8_bits) : has_8_bits_(has_8_bits) {}

  const char* format_name() const override { return kName; }
  std::string summary() const override {
    return has_8_bits_ ? "8 bits per channel, weights alone"
                       : "4-bit table codes, dequantized at load";
  }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const LinearSpec::Part& part,
                                     int64_t in_features) const override {
    if (part.expert < 0 && has_table_weight(source, part)) {
      return open_table_weight(source, part, in_features);
    }
    if (part.expert < 0 && has_int8_weight(source, part)) {
      return open_int8_weight(source, part, in_features);
    }
    return open_dense_weight(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const LinearSpec::Part& part, int64_t) const override {
    throw UnsupportedError(str("layer ", quote(part.name),
                               ": expected a format that dummy weights are made in, got ", kName,
                               ". Take gptq or awq for 4 bits in groups."));
  }

 private:
  bool has_8_bits_;
};

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields || (config.method != kName && config.method != "bnb")) return nullptr;
  return std::make_unique<BitsAndBytesScheme>(config.fields->boolean_or("load_in_8bit", false));
}

constexpr std::array<FormatOption, 2> kOptions = {{
    {"NF4, FP4, one or two levels of scales, in 16 bits", option_problem(PackedLayout::kF16Panel)},
    {"LLM.int8(), weights alone", option_problem(PackedLayout::kU8Quad, kOptionSize)},
}};

}  // namespace

const QuantFormat kQuantBitsAndBytes = {.name = kName, .detect = detect, .options = kOptions};

}  // namespace halley
