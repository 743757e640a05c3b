// Weights in full precision, as the format "none" and the layers that other formats leave alone
// have them.
#pragma once

#include <memory>

#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// The tensor of the part's weight: "<name>.weight", or "<name>" of fused experts.
std::string dense_weight_name(const LinearSpec::Part& part);

/// <name>.weight [stored_rows, K] in f16, bf16 or f32, or one matrix of fused experts. Throws
/// CheckpointError that names the tensor, what was expected and what was found.
std::unique_ptr<StoredWeight> open_dense_weight(const TensorSource& source,
                                                const LinearSpec::Part& part, int64_t in_features);

/// The tensor that open_dense_weight() reads, of one type, for dummy weights.
TensorInfo expected_dense_tensor(const LinearSpec::Part& part, int64_t in_features, DType dtype);

/// What the configuration says of a layer.
enum class ConfigSays : uint8_t { kQuantized, kDense, kEither };

/// Throws CheckpointError unless the tensors agree with the configuration. `because` names the
/// field that says it: "field 'quantization_config.ignore' holds \"lm_head\"".
void check_agreement(const TensorSource& source, const LinearSpec::Part& part, ConfigSays says,
                     bool is_quantized, const std::string& because);

/// Throws UnsupportedError: the part is a matrix of fused experts, and they are quantized.
[[noreturn]] void reject_fused_experts(const std::string& where, const LinearSpec::Part& part);

/// Throws CheckpointError: there is the weight in full precision beside the tensor of its codes.
[[noreturn]] void reject_second_weight(const TensorSource& source, const LinearSpec::Part& part,
                                       const std::string& codes_name);

}  // namespace halley
