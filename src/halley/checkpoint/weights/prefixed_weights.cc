#include "halley/checkpoint/weights/prefixed_weights.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/checkpoint/safetensors/sorted_tensors.h"

namespace halley {
namespace {

constexpr std::string_view kPrefix = "model.";

class PrefixedWeights final : public TensorSource {
 public:
  explicit PrefixedWeights(std::unique_ptr<TensorSource> source) : source_(std::move(source)) {
    infos_ = source_->tensors();
    for (TensorInfo& info : infos_) info.name.insert(0, kPrefix);  // their order stays
  }

  std::string description() const override { return source_->description(); }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override { return find_sorted(infos_, name); }
  TensorView view(const TensorInfo& info) const override { return source_->view(own(info)); }
  void release(const TensorInfo& info) const override { source_->release(own(info)); }

 private:
  const TensorInfo& own(const TensorInfo& info) const {
    const TensorInfo* found = source_->find(std::string_view(info.name).substr(kPrefix.size()));
    HALLEY_CHECK(found != nullptr, info.name);
    return *found;
  }

  std::unique_ptr<TensorSource> source_;
  std::vector<TensorInfo> infos_;
};

}  // namespace

std::unique_ptr<TensorSource> with_model_prefix(std::unique_ptr<TensorSource> source) {
  const auto has = [&](std::string_view prefix) {
    return std::any_of(source->tensors().begin(), source->tensors().end(),
                       [&](const TensorInfo& info) { return info.name.starts_with(prefix); });
  };
  if (has(kPrefix) || !has("layers.0.")) return source;
  return std::make_unique<PrefixedWeights>(std::move(source));
}

}  // namespace halley
