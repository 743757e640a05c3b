// The tensors of linear layers in f32, row by row, also where a checkpoint fuses layers in one
// tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/checkpoint/safetensors/tensor_store.h"
#include "halley/quant/base/linear_spec.h"

namespace halley {

/// Copies a tensor of type f16, bf16 or f32 into `store` as f32. Throws as find_dense_tensor().
void copy_tensor(const TensorSource& source, const std::string& name, const Shape& shape,
                 TensorStore& store);

/// Copies the weights of a linear layer, whole stored tensors, and its biases. Throws as
/// find_dense_tensor(), and as reject_stacked_experts().
void copy_linear(const TensorSource& source, const LinearSpec& spec, TensorStore& store);

/// Throws UnsupportedError where a part's tensor holds several experts.
void reject_stacked_experts(const std::string& where, const LinearSpec& spec);

/// One output feature's weights and bias.
struct LinearRow {
  std::span<float> weights;  // [K]
  float* bias = nullptr;     // null: none
};

/// Output features [begin, end) of a layer whose tensors are in `store`. They lead into it.
std::vector<LinearRow> rows_of(TensorStore& store, const LinearSpec& spec, int64_t begin,
                               int64_t end);

/// Weights and bias divided by the number.
void divide_row(const LinearRow& row, float divisor);

/// Row i becomes the former row perm[i], bias included.
void permute_rows(const std::vector<LinearRow>& rows, std::span<const int32_t> perm);

}  // namespace halley
