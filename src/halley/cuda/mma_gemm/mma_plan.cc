#include "halley/cuda/mma_gemm/mma_plan.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley::cuda {
namespace {

constexpr int kStagesMax = 4, kStagesWanted = 3, kStagesMin = 2;
/// A block has at least this many chunks of K: fewer hide nothing behind each other.
constexpr int64_t kSplitChunksMin = 4;
constexpr int kSplitsMax = 16;

/// As many as leave room for the blocks wanted, but no fewer than hide the memory's latency.
int stages_of(int bytes, const MixedDevice& device) {
  const int wanted = device.shared_bytes_max / kMmaBlocks / bytes;
  const int fitting = device.shared_bytes_max / bytes;
  return std::min({std::max(wanted, kStagesWanted), fitting, kStagesMax});
}

int tile_for(const MmaShape& shape) { return shape.M <= kMmaTiles[0].tokens ? 0 : 1; }

}  // namespace

const char* name_of(MmaKind kind) {
  return kind == MmaKind::kS4Blocks ? "s4_blocks" : name_of(layout_of(kind));
}

std::ostream& operator<<(std::ostream& out, const MmaPlan& plan) {
  return out << kChunkOutputs << " outputs x " << plan.tile().tokens << " tokens, "
             << plan.num_panels << " x " << plan.token_tiles << " tiles, K in " << plan.num_splits
             << (plan.num_splits == 1 ? " part, " : " parts, ") << plan.num_stages << " stages";
}

MmaPlan mma_plan_of(const MmaShape& shape, const MixedDevice& device, int tile_index,
                    int num_splits) {
  HALLEY_CHECK(shape.M >= 1 && shape.N >= 1 && shape.K >= 1, shape.M, shape.N, shape.K);
  HALLEY_CHECK(tile_index >= 0 && tile_index < static_cast<int>(kMmaTiles.size()), tile_index);
  MmaPlan plan;
  plan.tile_index = tile_index;
  const int tokens = plan.tile().tokens;
  const int64_t num_chunks = ceil_div<int64_t>(shape.K, kChunkInputs);
  plan.num_panels = static_cast<int>(ceil_div<int64_t>(shape.N, kChunkOutputs));
  plan.token_tiles = static_cast<int>(ceil_div<int64_t>(shape.M, tokens));
  plan.num_splits = static_cast<int>(std::clamp<int64_t>(num_splits, 1, num_chunks));
  const int bytes = stage_bytes(shape.kind, tokens, shape.group_size);
  plan.num_stages = stages_of(bytes, device);
  HALLEY_CHECK(plan.num_stages >= kStagesMin, plan.num_stages, device.shared_bytes_max);
  plan.shared_bytes = std::max(plan.num_stages * bytes, sums_bytes(tokens));
  HALLEY_CHECK(plan.shared_bytes <= device.shared_bytes_max, plan.shared_bytes,
               device.shared_bytes_max);
  if (plan.num_splits > 1) {
    plan.partial_bytes = static_cast<size_t>(plan.num_splits) * static_cast<size_t>(shape.M) *
                         static_cast<size_t>(plan.num_panels) * kChunkOutputs * 4;
  }
  return plan;
}

MmaPlan plan_mma_gemm(const MmaShape& shape, const MixedDevice& device) {
  const int tile_index = tile_for(shape);
  const MmaTile& tile = kMmaTiles[static_cast<size_t>(tile_index)];
  const int64_t tiles =
      ceil_div<int64_t>(shape.N, kChunkOutputs) * ceil_div<int64_t>(shape.M, tile.tokens);
  const int64_t wanted = int64_t{kMmaBlocks} * device.num_sms;
  const int64_t num_chunks = ceil_div<int64_t>(shape.K, kChunkInputs);
  const int64_t splits =
      std::min({wanted / tiles, num_chunks / kSplitChunksMin, int64_t{kSplitsMax}});
  return mma_plan_of(shape, device, tile_index, static_cast<int>(std::max<int64_t>(splits, 1)));
}

MmaPlan invariant_mma_plan(const MmaShape& shape, const MixedDevice& device) {
  return mma_plan_of(shape, device, tile_for(shape), 1);
}

size_t mma_workspace_bytes_max(const MixedDevice& device) {
  const auto blocks = static_cast<size_t>(kMmaBlocks * device.num_sms);
  return blocks * static_cast<size_t>(kMmaTiles.back().tokens) * kChunkOutputs * 4;
}

}  // namespace halley::cuda
