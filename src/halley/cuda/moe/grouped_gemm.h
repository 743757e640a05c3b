// Products of rows with the weights of their experts, all experts in one launch.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// What is done with the sums before they are rounded.
enum class GroupedEpilogue : uint8_t {
  kNone,
  kActivation,  // y = f(sum)
  kGated        // y = f(gate's sum) * the other's: the weight has two halves
};

struct GroupedGemm {
  /// [M, K], or [num_slots, K]: f16 or bf16.
  ConstMatrix x = {};
  /// The row of x of each slot; null: x has slots.
  const int32_t* slot_row = nullptr;
  /// [E + 1] in device memory: expert e has slots expert_begin[e] to expert_begin[e + 1].
  const int32_t* expert_begin = nullptr;
  int64_t num_experts = 0;
  /// [E], or [E, 2] with kGated (gate and other factor): addresses in device memory of the first
  /// rows of weights [N, K] of x's type, rows `weight_stride` elements apart.
  const std::byte* const* weights = nullptr;
  int64_t weight_stride = 0;
  /// Beside `weights`: addresses of [N] f32; null: no biases.
  const float* const* biases = nullptr;
  GroupedEpilogue epilogue = GroupedEpilogue::kNone;
  Activation activation = Activation::kSilu;
};

/// y[s] = epilogue(x[slot_row[s]] W_e^T + bias_e) for the slots s of each expert e.
/// Shapes    y [num_slots, N] of x's type
/// Requires  rows of x and of weights begin at multiples of 16 bytes, K >= 1
/// Numerics  f32 sums, in an order of inputs that nothing but K decides: a row's bits are the same
///           wherever it lies. Rounded once.
/// Runs in a fixed grid: group sizes are read on the device, and the slots that an expert has on
/// average choose the tile on the host.
void grouped_gemm(const CudaContext& context, const GroupedGemm& gemm, Matrix y);

}  // namespace halley::cuda
