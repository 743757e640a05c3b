// Tensors of one source in front of another's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// All tensors of `front`, and those of `back` that neither have a name of them nor stand in
/// `hidden`. Both must outlive it and must not get or lose tensors.
class OverlaySource : public TensorSource {
 public:
  OverlaySource(const TensorSource& front, const TensorSource& back,
                const std::vector<std::string>& hidden = {});

  /// That of `back`.
  std::string description() const override { return back_.description(); }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override;
  TensorView view(const TensorInfo& info) const override;
  void release(const TensorInfo& info) const override;

 private:
  const TensorSource& front_;
  const TensorSource& back_;
  std::vector<TensorInfo> infos_;  // sorted by name
};

}  // namespace halley
