// Rounds the tensors of a checkpoint to f16 where a method asks for it, and reports the changes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/tensor.h"
#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/methods/recipe.h"
#include "halley/quant/nestedfp/encode.h"
#include "halley/quant/nestedfp/f16_rounding.h"

namespace halley {

/// A tensor of another type that was to be rounded to f16.
struct RoundingReport {
  std::string name;   // "model.layers.0.mlp.up_proj.weight"
  std::string dtype;  // that the checkpoint has: "bf16"
  F16Rounding rounding;
  std::string kept_because;  // a value overflows f16: the tensor keeps its type; else empty
};

/// The members of F16Rounding's object, "name", "from" and "kept_because".
OrderedJson to_json(const RoundingReport& report);
RoundingReport rounding_report_of(const Json& json);

/// The sum over the tensors that were rounded.
RoundedModel rounded_model_of(std::span<const RoundingReport> reports);

/// Gives a tensor that is not quantized, which the checkpoint has in type `stored`, as it is
/// written: in that type by to_stored_type(). A matrix of nestedfp is written in f16, with a report
/// where it had another type: the embedding decides the type of activations, and other matrices run
/// in it. Norms and biases are vectors and keep their type: they are small, and kernels read them
/// as f32.
CheckpointTensor to_written_type(ExecContext& context, const Recipe& recipe,
                                 const std::string& name, const TensorView& view, DType stored,
                                 std::vector<RoundingReport>& reports);

}  // namespace halley
