// The format "none": weights in f16, bf16 or f32, kept in the type they have.
#pragma once

#include <memory>

#include "halley/quant/base/format.h"

namespace halley {

/// Claims every checkpoint whose config.json declares no quantization.
///
/// A part's tensors are `<name>.weight` [stored_rows, K] and, with a bias, `<name>.bias`
/// [stored_rows]. A part with `expert` >= 0 is a matrix of the tensor `<name>` itself,
/// [num_stored_experts, stored_rows, K], as transformers 5 names fused experts; it has no bias.
/// Biases become f32.
extern const QuantFormat kQuantNone;

/// The scheme, for layers that another format's declaration leaves in full precision.
std::unique_ptr<QuantScheme> make_dense_scheme();

}  // namespace halley
