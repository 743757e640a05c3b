// Tells from the tensors alone whether a part of a layer is quantized, and rejects tensors that do
// not belong together.
#pragma once

#include <string>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/base/linear_spec.h"

namespace halley {

/// Whether <part>.weight is there and holds codes: its type is not f16, bf16 or f32.
bool has_quantized_weight(const TensorSource& source, const LinearSpec::Part& part);

/// For parts that are a matrix of fused experts. Throws UnsupportedError where the tensor is
/// quantized, or a packed tensor or scales of it are there.
void reject_quantized_experts(const TensorSource& source, const LinearSpec::Part& part);

/// Throws CheckpointError where there is a tensor <part><suffix>, ".weight_scale", although the
/// weight is in full precision.
void reject_stray_tensor(const TensorSource& source, const LinearSpec::Part& part,
                         const char* suffix);

/// Throws CheckpointError where there is a tensor `name`, which `because` rules out: "'x' is
/// symmetric".
void reject_undeclared_tensor(const TensorSource& source, const std::string& name,
                              const std::string& because);

}  // namespace halley
