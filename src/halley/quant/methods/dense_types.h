// Converts tensors that stay in full precision back to the type that the checkpoint stores.
#pragma once

#include <string>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/tensor.h"
#include "halley/quant/base/quantized_weight.h"

namespace halley {

/// A tensor of f32, f16 or bf16 converted to `dtype` (f32, f16 or bf16), to nearest even. Throws
/// UnsupportedError where a value is out of range.
CheckpointTensor to_stored_type(const std::string& name, const TensorView& view, DType dtype);

/// The type of the original's tensor of this name; of one that it lacks, `otherwise`.
DType stored_type_of(const TensorSource& original, const std::string& name, DType otherwise);

}  // namespace halley
