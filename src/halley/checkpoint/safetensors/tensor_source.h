// The source of a model's tensors: a checkpoint's files, or synthetic data of the right shapes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "halley/core/tensor.h"

namespace halley {

/// A header's entry for one tensor.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  size_t num_bytes = 0;
};

/// Read-only and safe to use from any thread. Views live as long as the source.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// For messages: the model's directory, or "dummy weights".
  virtual std::string description() const = 0;
  /// All tensors, sorted by name.
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  /// Nullptr where there is none of that name.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  /// The data of a tensor that find() gave.
  virtual TensorView view(const TensorInfo& info) const = 0;
  /// Says that the tensor's data will not be read again soon, so that they need not stay in memory.
  /// Views stay valid.
  virtual void release(const TensorInfo& info) const { static_cast<void>(info); }
};

}  // namespace halley
