// Full-precision tensors of a checkpoint: checked look-up, and small ones (norms, biases) as f32.
#pragma once

#include <string_view>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/tensor.h"

namespace halley {

/// The tensor `name` of exactly this shape and of type f16, bf16 or f32. Throws CheckpointError
/// that names the source, the tensor, what was expected and what was found.
const TensorInfo& find_dense_tensor(const TensorSource& source, std::string_view name,
                                    const Shape& shape);

/// All elements as f32, which is exact. The view's type is f16, bf16 or f32; its data need not be
/// aligned.
std::vector<float> to_f32(const TensorView& view);

}  // namespace halley
