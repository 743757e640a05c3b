// Unquantized weights: those of the format "none", and layers that other formats leave in full
// precision.
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

/// The quantization that config.json declares for a layer; kEither: the tensors decide.
enum class ConfigSays : uint8_t { kQuantized, kDense, kEither };

/// Throws CheckpointError unless the tensors agree with the configuration. `because` names the
/// field that declares it: "field 'quantization_config.ignore' holds \"lm_head\"".
void check_agreement(const TensorSource& source, const LinearSpec::Part& part, ConfigSays says,
                     bool is_quantized, const std::string& because);

/// Throws UnsupportedError: the part is a matrix of fused experts, and they are quantized.
[[noreturn]] void reject_fused_experts(const std::string& where, const LinearSpec::Part& part);

/// Throws CheckpointError: the checkpoint has the weight in full precision and also quantized, as
/// tensor `codes_name`.
[[noreturn]] void reject_second_weight(const TensorSource& source, const LinearSpec::Part& part,
                                       const std::string& codes_name);

}  // namespace halley
