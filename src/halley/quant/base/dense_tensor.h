// Tensors of a checkpoint: checked look-up, and small ones (norms, biases, scales) as f32.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/tensor.h"

namespace halley {

/// A tensor that a checkpoint should have.
inline TensorInfo info_of(std::string name, DType dtype, Shape shape) {
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)};
}

/// The tensor `name` of exactly this shape and of one of the types. Throws CheckpointError that
/// names the source, the tensor, what was expected and what was found.
const TensorInfo& find_tensor(const TensorSource& source, std::string_view name,
                              std::initializer_list<DType> dtypes, const Shape& shape);

/// The tensor `name` of exactly this shape and of type f16, bf16 or f32. Throws CheckpointError
/// that names the source, the tensor, what was expected and what was found.
const TensorInfo& find_dense_tensor(const TensorSource& source, std::string_view name,
                                    const Shape& shape);

/// All elements as f32, which is exact. The view's type is f16, bf16, f32 or f8_e8m0; its data need
/// not be aligned.
std::vector<float> to_f32(const TensorView& view);

}  // namespace halley
