// Writes NestedFP files: a layer's tensors, and the declaration in config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/tensor.h"
#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// The tensors of one layer.
struct NestedFpLayer {
  /// <name>.weight_upper and .weight_lower; of an exception <name>.weight in f16.
  std::vector<CheckpointTensor> tensors;
  /// Why the layer is an exception, which runs in f16 in both precisions; empty where it is not.
  std::string exception;
};

/// From a weight [N, K] in f16; or in bf16 or f32, if f16 holds every value of it. A layer with a
/// value that is not finite or beyond 1.75 in magnitude is an exception. Throws UnsupportedError
/// for other types and for values that f16 does not hold, with their index. `file_dtype` is the
/// type of the tensor in the file where `weight` is a copy in another type: the message names it.
NestedFpLayer encode_nestedfp(const std::string& name, const TensorView& weight,
                              std::optional<DType> file_dtype = std::nullopt);

/// The quantization_config; layers that are not quantized are its exceptions.
OrderedJson nestedfp_declaration(const WrittenFormat& format);

}  // namespace halley
