// Routing of tokens to experts.
#pragma once

#include <cstdint>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"

namespace halley {

/// Which rows each expert works on.
struct MoeRouting {
  int64_t num_experts_per_token = 0;
  std::vector<int32_t> expert_of;  // [M, num_experts_per_token], ascending expert id in a row
  std::vector<float> weight_of;    // [M, num_experts_per_token], as expert_of
  std::vector<int64_t>
      expert_begin;  // [E + 1]: expert e has slots [expert_begin[e], expert_begin[e+1])
  std::vector<int32_t> slot_row;   // [M * num_experts_per_token]: row of X of a slot
  std::vector<int32_t> row_slots;  // [M, num_experts_per_token]: slots of a row, as expert_of
};

/// Not a slot: that of an expert which keep_experts() has left out.
inline constexpr int32_t kNoSlot = -1;

/// softmax over the router's logits, then the largest `num_experts_per_token` (the lower expert
/// wins a tie), divided by their sum where `is_normalized`. A token with a logit that is NaN or
/// +infinity has no softmax: it goes to the experts with the lowest ids, with NaN as weights.
/// Shapes    router_logits [M, E] f32
/// Requires  1 <= num_experts_per_token <= E
MoeRouting route_tokens(ConstMatrix router_logits, int64_t num_experts_per_token,
                        bool is_normalized);

/// Leaves out the slots of all experts but [begin, end), which others work on: `expert_begin` is
/// [end - begin + 1] then, slot_row has their slots alone, and row_slots kNoSlot for the others.
/// Requires  0 <= begin <= end <= E
void keep_experts(MoeRouting& routing, int64_t begin, int64_t end);

/// slots[s] = x[slot_row[s]]. Shapes x [M, K], slots [slot_row.size(), K] f32.
void gather_slots(const MoeRouting& routing, ConstMatrix x, Matrix slots);

/// y[m] = sum over the row's experts, in ascending order, of weight * slots[slot]; 0 for a row that
/// has none.
void combine_slots(const MoeRouting& routing, ConstMatrix slots, Matrix y);

/// The same over all threads of the pool; the bits do not change.
void gather_slots(ExecContext& context, const MoeRouting& routing, ConstMatrix x, Matrix slots);
void combine_slots(ExecContext& context, const MoeRouting& routing, ConstMatrix slots, Matrix y);

}  // namespace halley
