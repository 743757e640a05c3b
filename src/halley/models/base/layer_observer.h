// Observes the activations of a decoder layer, for calibration.
#pragma once

#include "halley/core/matrix.h"
#include "halley/quant/base/linear_op.h"
#include "halley/quant/base/linear_spec.h"

namespace halley {

/// Called by the thread that runs the model, between kernels. Arguments are valid until it returns.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  /// A linear layer ran: x [M, in_features] -> y [M, out_features], f32. An expert sees only the
  /// rows that are routed to it.
  virtual void on_linear(const LinearSpec& spec, const LinearOp& op, ConstMatrix x,
                         ConstMatrix y) = 0;
  /// Keys and values [M, J * D] f32 as they go into the cache: keys normed and rotated.
  virtual void on_keys_values(ConstMatrix k, ConstMatrix v) = 0;
};

}  // namespace halley
