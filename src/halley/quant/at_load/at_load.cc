#include "halley/quant/at_load/at_load.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/at_load/rounded_weight.h"
#include "halley/quant/base/dense_weight.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr const char* kName = "at_load";

constexpr std::array<AtLoadMethod, 6> kMethods = {{
    {.name = "fp8",
     .description = "e4m3 with a scale per channel, activations too",
     .layout = PackedLayout::kF8E4M3Quad,
     .activation = ActivationQuant::kE4m3Token},
    {.name = "int8",
     .description = "8 bits per channel, activations too",
     .layout = PackedLayout::kU8Quad,
     .activation = ActivationQuant::kS8Token},
    {.name = "int8-weight-only",
     .description = "8 bits per channel, weights alone",
     .layout = PackedLayout::kU8Quad},
    {.name = "fp8-weight-only",
     .description = "e4m3 with a scale per channel, weights alone",
     .layout = PackedLayout::kF8E4M3Quad},
    {.name = "int4-rtn",
     .description = "4 bits, weights alone, rounded to nearest",
     .layout = PackedLayout::kU4Quad,
     .group_size = 128,
     .is_symmetric = false},
    {.name = "nestedfp",
     .description = "f16 and e4m3 in one weight, for --precision",
     .layout = PackedLayout::kNestedF16Quad},
}};

class AtLoadScheme : public QuantScheme {
 public:
  explicit AtLoadScheme(AtLoadMethod method) : method_(method) {}

  const char* format_name() const override { return kName; }
  std::string summary() const override {
    std::string text = str(method_.name, " at load, ", method_.description);
    return method_.group_size == 0 ? text : str(text, " in groups of ", method_.group_size);
  }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    auto dense = open_dense_weight(source, part, in_features);
    if (part.is_usually_dense) return dense;
    std::string where =
        str(source.description(), ": tensor ", quote(dense->desc().tensor_names.at(0)));
    if (has_low_precision(method_.layout)) {
      const std::string why_not = exception(part, *dense);
      if (!why_not.empty()) {
        return keep_weight(std::move(dense), str("layer ", quote(part.name), ": ", why_not,
                                                 "; it runs in full precision alone"));
      }
    }
    return round_weight(std::move(dense), method_, std::move(where));
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    return {expected_dense_tensor(part, in_features, DType::kF16)};
  }

 private:
  /// A weight is read once to find out, although plans and loads open it several times.
  std::string exception(const Part& part, const StoredWeight& dense) const {
    const auto key = std::tuple(part.name, part.row_begin, part.out_features, part.expert);
    {
      const std::lock_guard lock(mutex_);
      const auto found = exceptions_.find(key);
      if (found != exceptions_.end()) return found->second;
    }
    std::string why_not = why_not_nested(dense);
    const std::lock_guard lock(mutex_);
    return exceptions_.emplace(key, std::move(why_not)).first->second;
  }

  AtLoadMethod method_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, std::string> exceptions_;
};

std::string names() {
  std::string text;
  for (const AtLoadMethod& method : kMethods) text += str(text.empty() ? "" : ", ", method.name);
  return text;
}

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields || config.method != kName) return nullptr;
  const HfConfig& fields = *config.fields;
  const std::string name = fields.string("method");
  const auto* found = std::find_if(kMethods.begin(), kMethods.end(),
                                   [&](const AtLoadMethod& m) { return name == m.name; });
  if (found == kMethods.end()) {
    fields.fail("method", str("expected one of ", names(), ", got ", quote(name), "."));
  }
  AtLoadMethod method = *found;
  if (fields.has("group_size")) {
    constexpr int64_t kSmallest = 32, kLargest = 1024;
    const int64_t size = fields.integer("group_size", kSmallest, kLargest);
    if (method.group_size == 0 || (size & (size - 1)) != 0) {
      fields.fail("group_size",
                  method.group_size == 0
                      ? str("expected none with method ", name, ", which has no groups.")
                      : str("expected a power of two, got ", size, "."));
    }
    method.group_size = size;
  }
  return std::make_unique<AtLoadScheme>(method);
}

}  // namespace

std::span<const AtLoadMethod> at_load_methods() { return kMethods; }

QuantConfig at_load_config(std::string_view method) {
  for (const AtLoadMethod& known : kMethods) {
    if (method != known.name) continue;
    return quant_config_of(HfConfig::parse(
        str(R"({"quant_method": ")", kName, R"(", "method": ")", known.name, R"("})"),
        "--quantization"));
  }
  throw InputError(
      str("--quantization: expected one of ", names(), ", got ", quote(std::string(method)), "."));
}

const QuantFormat kQuantAtLoad = {.name = kName, .detect = detect};

}  // namespace halley
