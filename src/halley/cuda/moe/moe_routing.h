// Routing of rows to experts on the GPU: who goes where, and the order of the slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

/// A warp has a bit for each expert.
inline constexpr int64_t kExpertsMax = 1024;

/// MoeRouting (kernels/moe/moe.h) in device memory.
struct DeviceRouting {
  int64_t num_rows = 0, num_experts = 0, num_experts_per_token = 0;
  int32_t* expert_of = nullptr;     // [M, num_experts_per_token], ascending in a row
  float* weight_of = nullptr;       // beside expert_of
  int32_t* row_slots = nullptr;     // beside expert_of: the slot
  int32_t* slot_row = nullptr;      // [M * num_experts_per_token]
  int32_t* expert_begin = nullptr;  // [E + 1]: slots of expert e from expert_begin[e] on

  int64_t num_slots() const { return num_rows * num_experts_per_token; }
};

/// Takes the arrays from the workspace.
DeviceRouting take_routing(DeviceArena& workspace, int64_t num_rows, int64_t num_experts,
                           int64_t num_experts_per_token);
/// Bytes that take_routing() takes.
size_t routing_bytes(int64_t num_rows, int64_t num_experts, int64_t num_experts_per_token);

/// route_tokens() of kernels/moe/moe.h: the same experts, ties and order of slots, which are sorted
/// by expert, then by row; a token without a softmax goes to the lowest ids with NaN.
/// Shapes    router_logits [M, E] f32
/// Requires  1 <= num_experts_per_token <= E <= kExpertsMax
/// Numerics  weights differ from the CPU's in the last bits of exp()
void route_rows(const CudaContext& context, ConstMatrix router_logits, bool is_normalized,
                const DeviceRouting& routing);

}  // namespace halley::cuda
