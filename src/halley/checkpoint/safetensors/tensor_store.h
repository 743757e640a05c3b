// Tensors in memory that can be read like a checkpoint's, and changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"

namespace halley {

/// Owns its tensors. Reading is safe from any thread while nothing is changed.
class TensorStore : public TensorSource {
 public:
  explicit TensorStore(std::string description = "tensors in memory")
      : description_(std::move(description)) {}

  /// Adds or replaces a tensor. `data` has the bytes that dtype and shape ask for.
  void set(const std::string& name, DType dtype, const Shape& shape, std::vector<std::byte> data);
  void set_f32(const std::string& name, const Shape& shape, std::span<const float> values);
  void remove(std::string_view name);

  /// The elements of an f32 tensor, to be changed. The tensor must be there.
  std::span<float> f32(std::string_view name);

  std::string description() const override { return description_; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override;
  TensorView view(const TensorInfo& info) const override;

 private:
  std::string description_;
  std::vector<TensorInfo> infos_;  // sorted by name
  std::map<std::string, std::vector<std::byte>, std::less<>> data_;
};

}  // namespace halley
