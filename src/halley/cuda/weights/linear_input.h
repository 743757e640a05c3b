// What a layer's inputs are written as by the operation before it: numbers, or codes where the
// layer multiplies codes, so that no pass of its own rounds them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/fused/quantized_output.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/weights/cuda_linear.h"

namespace halley::cuda {

/// M rows for one layer, or for several that take the same (take_linear_input() says which).
struct LinearInput {
  bool is_codes = false;
  Matrix numbers = {};         // [M, K] of the activations' type, unless is_codes
  QuantizedOutput codes = {};  // if is_codes

  int64_t num_rows() const { return is_codes ? codes.rows.codes.num_rows : numbers.num_rows; }
};

/// Memory for M rows in the form that the layer takes, from the workspace: the caller marks and
/// releases it.
LinearInput take_linear_input(const CudaContext& context, const CudaLinear& linear, int64_t M);
/// The same with the numbers in memory that the caller has: [M, K] of the activations' type, and
/// codes from the workspace.
LinearInput take_linear_input(const CudaContext& context, const CudaLinear& linear, Matrix numbers);
/// The most that either takes.
size_t linear_input_bytes(const CudaLinear& linear, int64_t M);

/// norm_rows(), add_norm_rows() and gated_activation() (cuda/ops, cuda/fused) into either form.
void norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix x,
               const LinearInput& y);
void add_norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix block,
                   Matrix hidden, const LinearInput& y);
void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      const LinearInput& y);

/// y = layer(x), the same bits as CudaLinear::run() of the numbers. x was taken for this layer, or
/// for one of the same form.
void run_linear(const CudaContext& context, const CudaLinear& linear, const LinearInput& x,
                Matrix y, Precision precision = Precision::kFull);

}  // namespace halley::cuda
