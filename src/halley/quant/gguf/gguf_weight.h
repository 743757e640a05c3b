// Quantized weights of a GGUF file.
#pragma once

#include <memory>

#include "halley/checkpoint/gguf/ggml_type.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// The quantized tensor "<part>.weight.<type>" of the part; null where there is none. Throws
/// CheckpointError where there are two.
const TensorInfo* find_gguf_tensor(const TensorSource& source, const LinearSpec::Part& part);

/// The part of `info` [stored_rows, bytes of a row]. Throws CheckpointError where its shape is
/// another, and check_data() where a scale is not finite.
std::unique_ptr<StoredWeight> open_gguf_weight(const TensorSource& source, const TensorInfo& info,
                                               const LinearSpec::Part& part, int64_t in_features);

}  // namespace halley
