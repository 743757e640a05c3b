// A view of a tensor in host memory: address, element type, shape. Owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/core/dtype.h"

namespace halley {

/// Sizes of the dimensions, slowest first. Empty for a scalar.
using Shape = std::vector<int64_t>;

/// Number of elements, or nothing where a size is negative or their multiplication overflows.
[[nodiscard]] std::optional<int64_t> num_elements_of(std::span<const int64_t> shape);

/// Row-major and dense, the last dimension fastest. `data` need not be aligned.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  /// Elements of the whole tensor. The shape must be valid.
  int64_t num_elements() const;
  /// Bytes of the whole tensor.
  size_t num_bytes() const;
  /// The rows [begin, end) of the first dimension.
  TensorView rows(int64_t begin, int64_t end) const;
};

}  // namespace halley
