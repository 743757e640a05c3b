// Writes NestedFP files: a layer's tensors, and the declaration in config.json.
#pragma once

#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/tensor.h"
#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"
#include "halley/quant/nestedfp/f16_rounding.h"

namespace halley {

/// The tensors of one layer.
struct NestedFpLayer {
  /// <name>.weight_upper and .weight_lower; of an exception <name>.weight in f16; of an exception
  /// with a value that overflows f16 nothing: it stays as the checkpoint has it.
  std::vector<CheckpointTensor> tensors;
  /// Why the layer is an exception, which runs in one precision; empty where it is not.
  std::string exception;
  F16Rounding rounding;
};

/// From a weight [N, K] in f16, or in bf16 or f32, which is rounded to f16. A layer with a value
/// that is then beyond 1.75 in magnitude is an exception. Throws as round_to_f16().
NestedFpLayer encode_nestedfp(ExecContext& context, const std::string& name,
                              const TensorView& weight);

/// Why a weight with a value beyond 1.75 is an exception: "2 of 4 weights are beyond 1.75, the
/// first is -3.5 at [1, 0]". Empty where it is none.
std::string exception_of(const TensorView& weight, const F16Rounding& rounding);

/// How the model's tensors were rounded to f16.
struct RoundedModel {
  std::vector<std::string> dtypes;  // that the rounded tensors had: "bf16"
  F16Rounding rounding;             // of all of them
};

/// The quantization_config; layers that are not quantized are its exceptions. `rounded` is
/// recorded where any tensor was rounded.
OrderedJson nestedfp_declaration(const WrittenFormat& format, const RoundedModel& rounded = {});

}  // namespace halley
