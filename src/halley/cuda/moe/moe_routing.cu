#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {
namespace {

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
/// Warps of a block that routes rows.
constexpr int kBlockWarps = 4;
/// Of a block that finds an expert's slots.
constexpr int kAssignWarps = 16;
/// Up to this many rows one block does both, which saves a launch.
constexpr int64_t kOneBlockRowsMax = 64;
constexpr int kOneBlockWarps = 32;
/// A block has this much shared memory without asking.
constexpr int64_t kSharedBytesMax = 48 * 1024;
/// Loads of a lane in flight while it looks for an expert's slots.
constexpr int kLoads = 4;

struct RouteParams {
  const float* logits;
  int64_t logits_stride;
  bool is_normalized;
  int num_rows, num_experts, num_chosen;
  int32_t* expert_of;
  float* weight_of;
  int32_t* row_slots;
  int32_t* slot_row;
  int32_t* expert_begin;
};

__device__ int lane_index() { return static_cast<int>(threadIdx.x) % kLanes; }
__device__ int warp_index() { return static_cast<int>(threadIdx.x) / kLanes; }
__device__ unsigned lanes_below() { return (1u << lane_index()) - 1; }

/// The larger; NaN where one is NaN.
__device__ float larger_or_nan(float a, float b) { return b > a || isnan(b) ? b : a; }

/// Probabilities to shared memory; whether they exist.
__device__ bool softmax_row(const float* logits, int num_experts, float* probabilities) {
  float largest = -INFINITY;
  for (int e = lane_index(); e < num_experts; e += kLanes) {
    largest = larger_or_nan(largest, logits[e]);
  }
  for (int step = kLanes / 2; step > 0; step /= 2) {
    largest = larger_or_nan(largest, __shfl_xor_sync(kAllLanes, largest, step));
  }
  double sum = 0;
  for (int e = lane_index(); e < num_experts; e += kLanes) {
    const float value = expf(logits[e] - largest);
    probabilities[e] = value;
    sum += static_cast<double>(value);
  }
  for (int step = kLanes / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (int e = lane_index(); e < num_experts; e += kLanes) probabilities[e] *= scale;
  __syncwarp();
  return !isnan(sum);
}

/// Bit j of lane i: expert 32 j + i is among the num_chosen most probable.
__device__ unsigned choose_experts(const float* probabilities, bool exists, int num_experts,
                                   int num_chosen) {
  unsigned chosen = 0;
  for (int round = 0; round < num_chosen; ++round) {
    float best = 0;
    int best_expert = num_experts;
    for (int e = lane_index(), j = 0; e < num_experts; e += kLanes, ++j) {
      // Where there is no softmax all are alike, and the lowest ids are taken.
      const float probability = exists ? probabilities[e] : 0.0f;
      const bool is_better = probability > best || best_expert == num_experts;
      if ((chosen >> j & 1u) == 0 && is_better) {
        best = probability;
        best_expert = e;
      }
    }
    // Bits of numbers that are not negative are in the numbers' order.
    const unsigned bits = __float_as_uint(best);
    const bool is_best = bits == __reduce_max_sync(kAllLanes, bits);
    best_expert = __reduce_min_sync(kAllLanes, is_best ? best_expert : num_experts);
    if (best_expert % kLanes == lane_index()) chosen |= 1u << (best_expert / kLanes);
  }
  return chosen;
}

/// One warp; scratch [num_experts + num_chosen].
__device__ void route_row(const RouteParams& params, int m, float* scratch) {
  const int num_experts = params.num_experts, num_chosen = params.num_chosen;
  const bool exists = softmax_row(params.logits + m * params.logits_stride, num_experts, scratch);
  const unsigned chosen = choose_experts(scratch, exists, num_experts, num_chosen);
  float* weights = scratch + num_experts;
  const int64_t first = int64_t{m} * num_chosen;
  int place = 0;
  for (int j = 0; j * kLanes < num_experts; ++j) {
    const bool is_chosen = (chosen >> j & 1u) != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, is_chosen);
    if (is_chosen) {
      const int own = place + __popc(lanes & lanes_below());
      const int expert = j * kLanes + lane_index();
      params.expert_of[first + own] = expert;
      weights[own] = scratch[expert];
    }
    place += __popc(lanes);
  }
  __syncwarp();
  float sum = 0;  // in ascending order of experts, as the CPU's
  for (int i = 0; i < num_chosen; ++i) sum += weights[i];
  for (int i = lane_index(); i < num_chosen; i += kLanes) {
    params.weight_of[first + i] = params.is_normalized ? weights[i] / sum : weights[i];
  }
  __syncwarp();  // scratch is free again
}

/// Some consecutive entries of expert_of, for one warp.
struct Entries {
  int begin = 0, end = 0;
};

/// Of these entries: those of lower experts, and those of the expert.
struct EntryCounts {
  int before = 0, own = 0;
};

/// One warp. expert_of must be complete.
__device__ EntryCounts count_entries(const RouteParams& params, int expert, Entries entries) {
  EntryCounts counts;
#pragma unroll kLoads
  for (int i = entries.begin + lane_index(); i < entries.end; i += kLanes) {
    counts.before += params.expert_of[i] < expert ? 1 : 0;
    counts.own += params.expert_of[i] == expert ? 1 : 0;
  }
  return {__reduce_add_sync(kAllLanes, counts.before), __reduce_add_sync(kAllLanes, counts.own)};
}

/// One warp: the expert's slots from `next` on, in the order of entries.
__device__ void write_slots(const RouteParams& params, int expert, Entries entries, int next) {
  for (int begin = entries.begin; begin < entries.end; begin += kLoads * kLanes) {
    int experts[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int i = begin + load * kLanes + lane_index();
      experts[load] = i < entries.end ? params.expert_of[i] : -1;
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const unsigned lanes = __ballot_sync(kAllLanes, experts[load] == expert);
      if (experts[load] == expert) {
        const int i = begin + load * kLanes + lane_index();
        const int slot = next + __popc(lanes & lanes_below());
        params.slot_row[slot] = i / params.num_chosen;
        params.row_slots[i] = slot;
      }
      next += __popc(lanes);
    }
  }
}

/// One thread.
__device__ void write_begin(const RouteParams& params, int expert, int first_slot) {
  params.expert_begin[expert] = first_slot;
  if (expert == params.num_experts - 1) {
    params.expert_begin[params.num_experts] = params.num_rows * params.num_chosen;
  }
}

__device__ float* scratch_of_warp(const RouteParams& params) {
  extern __shared__ float scratch[];
  return scratch + warp_index() * (params.num_experts + params.num_chosen);
}

__global__ void __launch_bounds__(kBlockWarps* kLanes)
    route_kernel(const __grid_constant__ RouteParams params) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int m = static_cast<int>(blockIdx.x) * kBlockWarps + warp_index();
  if (m < params.num_rows) route_row(params, m, scratch_of_warp(params));
}

/// A block for each expert; its warps have equal parts of the entries.
__global__ void __launch_bounds__(kAssignWarps* kLanes)
    assign_kernel(const __grid_constant__ RouteParams params) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  __shared__ int before_of[kAssignWarps];
  __shared__ int own_of[kAssignWarps];
  const int expert = static_cast<int>(blockIdx.x);
  const int num_slots = params.num_rows * params.num_chosen;
  const int part = (num_slots + kAssignWarps - 1) / kAssignWarps;
  const Entries entries = {min(warp_index() * part, num_slots),
                           min((warp_index() + 1) * part, num_slots)};
  const EntryCounts counts = count_entries(params, expert, entries);
  if (lane_index() == 0) {
    before_of[warp_index()] = counts.before;
    own_of[warp_index()] = counts.own;
  }
  __syncthreads();
  int first = 0, before = 0;
  for (int warp = 0; warp < kAssignWarps; ++warp) {
    first += before_of[warp];
    if (warp < warp_index()) before += own_of[warp];
  }
  if (threadIdx.x == 0) write_begin(params, expert, first);
  write_slots(params, expert, entries, first + before);
}

__global__ void __launch_bounds__(kOneBlockWarps* kLanes)
    route_and_assign_kernel(const __grid_constant__ RouteParams params) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  for (int m = warp_index(); m < params.num_rows; m += kOneBlockWarps) {
    route_row(params, m, scratch_of_warp(params));
  }
  __syncthreads();
  const Entries all = {0, params.num_rows * params.num_chosen};
  for (int e = warp_index(); e < params.num_experts; e += kOneBlockWarps) {
    const int first = count_entries(params, e, all).before;
    if (lane_index() == 0) write_begin(params, e, first);
    write_slots(params, e, all, first);
  }
}

}  // namespace

DeviceRouting take_routing(DeviceArena& workspace, int64_t num_rows, int64_t num_experts,
                           int64_t num_experts_per_token) {
  DeviceRouting routing = {.num_rows = num_rows,
                           .num_experts = num_experts,
                           .num_experts_per_token = num_experts_per_token};
  const auto num_slots = static_cast<size_t>(routing.num_slots());
  routing.expert_of = workspace.take<int32_t>(num_slots);
  routing.weight_of = workspace.take<float>(num_slots);
  routing.row_slots = workspace.take<int32_t>(num_slots);
  routing.slot_row = workspace.take<int32_t>(num_slots);
  routing.expert_begin = workspace.take<int32_t>(static_cast<size_t>(num_experts) + 1);
  return routing;
}

size_t routing_bytes(int64_t num_rows, int64_t num_experts, int64_t num_experts_per_token) {
  const auto piece = [](int64_t count) {
    return round_up(static_cast<size_t>(count) * sizeof(int32_t), DeviceArena::kAlignment);
  };
  return 4 * piece(num_rows * num_experts_per_token) + piece(num_experts + 1);
}

void route_rows(const CudaContext& context, ConstMatrix router_logits, bool is_normalized,
                const DeviceRouting& routing) {
  const int64_t E = routing.num_experts, per_token = routing.num_experts_per_token;
  HALLEY_CHECK(router_logits.dtype == DType::kF32 && router_logits.num_cols == E &&
                   router_logits.num_rows == routing.num_rows,
               name_of(router_logits.dtype), router_logits.num_cols, E, router_logits.num_rows,
               routing.num_rows);
  HALLEY_CHECK(1 <= per_token && per_token <= E && E <= kExpertsMax, per_token, E);
  HALLEY_CHECK(routing.num_slots() < int64_t{1} << 30, routing.num_slots());
  const RouteParams params = {.logits = router_logits.row<float>(0),
                              .logits_stride = router_logits.row_stride,
                              .is_normalized = is_normalized,
                              .num_rows = static_cast<int>(routing.num_rows),
                              .num_experts = static_cast<int>(E),
                              .num_chosen = static_cast<int>(per_token),
                              .expert_of = routing.expert_of,
                              .weight_of = routing.weight_of,
                              .row_slots = routing.row_slots,
                              .slot_row = routing.slot_row,
                              .expert_begin = routing.expert_begin};
  const int64_t warp_bytes = (E + per_token) * static_cast<int64_t>(sizeof(float));
  if (routing.num_rows <= kOneBlockRowsMax && kOneBlockWarps * warp_bytes <= kSharedBytesMax) {
    return launch_kernel(context, "routing of rows to experts",
                         {.grid = dim3(1),
                          .block = dim3(kOneBlockWarps * kLanes),
                          .shared_bytes = static_cast<size_t>(kOneBlockWarps * warp_bytes)},
                         route_and_assign_kernel, params);
  }
  if (routing.num_rows > 0) {
    const int64_t blocks = ceil_div<int64_t>(routing.num_rows, kBlockWarps);
    launch_kernel(context, "routing of rows to experts",
                  {.grid = dim3(static_cast<unsigned>(blocks)),
                   .block = dim3(kBlockWarps * kLanes),
                   .shared_bytes = static_cast<size_t>(kBlockWarps * warp_bytes)},
                  route_kernel, params);
  }
  launch_kernel(context, "slots of experts",
                {.grid = dim3(static_cast<unsigned>(E)), .block = dim3(kAssignWarps * kLanes)},
                assign_kernel, params);
}

}  // namespace halley::cuda
