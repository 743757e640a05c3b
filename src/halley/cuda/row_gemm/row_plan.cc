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

}  // namespace

std::optional<RowPlan> plan_row(const RowShape& shape, const MixedDevice& device) {
  const int64_t inputs_max = shape.has_norm ? kNormedRowInputsMax : kRowInputsMax;
  if (shape.kind == MixedKind::kU4GroupS8 || is_u8(shape.kind) || shape.N < 1 || shape.K < 8 ||
      shape.K % 8 != 0 || shape.K > inputs_max || (shape.is_gated && shape.N % 32 != 0)) {
    return std::nullopt;
  }
  RowPlan plan;
  plan.num_segments = shape.is_gated ? 2 : 1;
  plan.num_places = static_cast<int>(ceil_div<int64_t>(shape.N, 16 * plan.num_segments));
  plan.num_blocks = std::min(plan.num_places, device.num_multiprocessors);
  plan.num_chunks = static_cast<int>(ceil_div<int64_t>(shape.K, kChunkInputs));
  const int block_places = ceil_div(plan.num_places, plan.num_blocks);
  // Equal parts, which all pass the ring at the same time.
  const int places_max = kRowStrips / plan.num_segments;
  plan.places = ceil_div(block_places, ceil_div(block_places, places_max));
  const int span_max = kRowSums / (16 * plan.num_segments) / plan.places * plan.places;
  plan.span = std::min(block_places, span_max);
  const int strips = plan.places * plan.num_segments;
  plan.groups = strips * kRowCodeBytes;
  plan.stage_bytes =
      plan.groups + strips * chunk_groups(shape.group_size) * 8 * group_entry_bytes(shape.kind);
  const int row_bytes = plan.num_chunks * kChunkInputs * (is_s8(shape.kind) ? 1 : 2);
  const int sum_bytes = kRowWarps * plan.num_segments * plan.span * 16 * 4;
  // Not more than a warp ever copies.
  const int items = ceil_div(block_places, plan.places) * ceil_div(plan.num_chunks, kRowWarps);
  const int shared_bytes_max =
      std::min(device.shared_bytes_max, shape.has_norm ? kNormedSharedBytes : kSharedBytes);
  for (plan.num_stages = std::min(items, kRowStagesMax); plan.num_stages >= 1; --plan.num_stages) {
    plan.inputs = kRowWarps * plan.num_stages * plan.stage_bytes;
    plan.sums = plan.inputs + row_bytes;
    plan.input_sums = plan.sums + sum_bytes;
    plan.scratch = plan.input_sums + (is_s8(shape.kind) ? 0 : plan.num_chunks * kChunkSteps * 4);
    plan.barriers = plan.scratch + kRowScratchWords * 4;
    plan.num_bytes = plan.barriers + kRowWarps * kRowStagesMax * 8;
    if (plan.num_bytes <= shared_bytes_max) break;
  }
  if (plan.num_stages == 0) return std::nullopt;
  const int early_bytes = shape.is_gated ? kGatedEarlyBytes : kEarlyBytes;
  plan.early_stages = std::clamp(early_bytes / (kRowWarps * plan.stage_bytes), 0, plan.num_stages);
  plan.starts_next_early = !shape.has_norm;
  return plan;
}

}  // namespace halley::cuda
