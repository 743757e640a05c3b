#include "halley/cuda/row_gemm/row_plan.h"

#include <algorithm>

#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/row_source.h"

namespace halley::cuda {
namespace {

// Measured on an H200, in decode steps of Llama-3 8B.
/// Of weights that are copied before earlier kernels are done.
constexpr int kEarlyBytes = 64 << 10;
constexpr int kGatedEarlyBytes = 128 << 10;
/// More stands in the way of the kernels around: a step of kU4S8 took 1.81 ms with these, 1.87 with
/// all.
constexpr int kNormedSharedBytes = 160 << 10;
constexpr int kSharedBytes = 150 << 10;

constexpr bool has_codes(RowKind kind) { return kind == RowKind::kU4S8 || kind == RowKind::kW4ax; }

/// Of a strip in a stage, behind its codes.
int strip_group_bytes(const RowShape& shape) {
  if (shape.kind == RowKind::kW4ax) return 16 * 4;
  const bool has_groups = !has_codes(shape.kind);
  return has_groups ? chunk_groups(shape.group_size) * 8 * group_entry_bytes(MixedKind::kU4F16) : 0;
}

/// Behind the warps' sums, of a chunk.
int chunk_sum_bytes(RowKind kind) {
  if (kind == RowKind::kW4ax) return 4;
  return has_codes(kind) ? 0 : kChunkSteps * 4;
}

}  // namespace

const char* name_of(RowKind kind) {
  switch (kind) {
    case RowKind::kNone:
      break;
    case RowKind::kU4S8:
      return "u4_s8";
    case RowKind::kU4F16:
      return "u4_f16";
    case RowKind::kU4Bf16:
      return "u4_bf16";
    case RowKind::kW4ax:
      return "w4ax";
  }
  return "none";
}

RowKind row_kind(MixedKind kind) {
  switch (kind) {
    case MixedKind::kU4S8:
      return RowKind::kU4S8;
    case MixedKind::kU4F16:
      return RowKind::kU4F16;
    case MixedKind::kU4Bf16:
      return RowKind::kU4Bf16;
    default:
      return RowKind::kNone;
  }
}

std::optional<RowPlan> plan_row(const RowShape& shape, const MixedDevice& device) {
  const int64_t inputs_max = shape.has_norm ? kNormedRowInputsMax : kRowInputsMax;
  if (shape.kind == RowKind::kNone || shape.N < 1 || shape.K < 8 || shape.K % 8 != 0 ||
      shape.K > inputs_max || (shape.is_gated && shape.N % 32 != 0)) {
    return std::nullopt;
  }
  RowPlan plan;
  plan.num_segments = shape.is_gated ? 2 : 1;
  plan.num_places = static_cast<int>(ceil_div<int64_t>(shape.N, 16 * plan.num_segments));
  plan.num_blocks = std::min(plan.num_places, device.num_sms);
  plan.num_chunks = static_cast<int>(ceil_div<int64_t>(shape.K, kChunkInputs));
  const int block_places = ceil_div(plan.num_places, plan.num_blocks);
  // Equal parts, which all pass the ring at the same time.
  const int places_max = kRowStrips / plan.num_segments;
  plan.places = ceil_div(block_places, ceil_div(block_places, places_max));
  const int span_max = kRowSums / (16 * plan.num_segments) / plan.places * plan.places;
  plan.span = std::min(block_places, span_max);
  const int strips = plan.places * plan.num_segments;
  plan.groups = strips * kRowCodeBytes;
  plan.stage_bytes = plan.groups + strips * strip_group_bytes(shape);
  const int row_bytes = plan.num_chunks * kChunkInputs * (has_codes(shape.kind) ? 1 : 2);
  const int sum_bytes = kRowWarps * plan.num_segments * plan.span * 16 * 4;
  // Not more than a warp ever copies.
  const int items = ceil_div(block_places, plan.places) * ceil_div(plan.num_chunks, kRowWarps);
  const int shared_bytes_max =
      std::min(device.shared_bytes_max, shape.has_norm ? kNormedSharedBytes : kSharedBytes);
  for (plan.num_stages = std::min(items, kRowStagesMax); plan.num_stages >= 1; --plan.num_stages) {
    plan.inputs = kRowWarps * plan.num_stages * plan.stage_bytes;
    plan.sums = plan.inputs + row_bytes;
    plan.input_sums = plan.sums + sum_bytes;
    plan.numbers = plan.input_sums + round_up(plan.num_chunks * chunk_sum_bytes(shape.kind), 16);
    plan.scratch = plan.numbers + (shape.has_input_perm ? plan.num_chunks * kChunkInputs * 2 : 0);
    plan.barriers = plan.scratch + kRowScratchWords * 4;
    plan.num_bytes = plan.barriers + kRowWarps * kRowStagesMax * 8;
    if (plan.num_bytes <= shared_bytes_max) break;
  }
  if (plan.num_stages == 0) return std::nullopt;
  const int early_bytes = shape.is_gated ? kGatedEarlyBytes : kEarlyBytes;
  plan.early_stages = std::clamp(early_bytes / (kRowWarps * plan.stage_bytes), 0, plan.num_stages);
  return plan;
}

}  // namespace halley::cuda
