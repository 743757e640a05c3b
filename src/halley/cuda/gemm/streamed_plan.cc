#include "halley/cuda/gemm/streamed_plan.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/streamed_settings.h"
#include "halley/cuda/tuning/tuned_plans.h"

namespace halley::cuda {
namespace {

constexpr int kAlignment = 1024;
constexpr int kBoxUnit = 8;  // rows: the swizzle repeats behind them

// Measured on an H200, in chains of products that start early.
/// Where blocks have no more weights, half of the shared memory is faster: the next kernel's blocks
/// fetch theirs beside them.
constexpr int64_t kSmallBlockBytes = 200 << 10;
constexpr int kHalfOfSharedBytes = 100 << 10;
constexpr int64_t kMediumBlockBytes = 500 << 10;
constexpr int kMediumSharedBytes = 150 << 10;
/// Inputs of so few rows do not wait behind weights: a ring takes all of a small block's, and that
/// of a large block is filled before earlier kernels are done.
constexpr int64_t kFewRows = 8;
/// With no more outputs a block, two blocks share the inputs of twice as many.
constexpr int64_t kSplitOutputsMax = 40;
/// Of weights that are copied at a time, and how often, where smaller copies can be made.
constexpr int64_t kStageBytesMax = 64 << 10;
constexpr int kStagesMin = 3;

int tokens_of(int64_t M) {
  int tokens = 8;
  while (tokens < M) tokens *= 2;
  return tokens;
}

/// Outputs, or pairs of outputs that are multiplied with each other.
int64_t num_places(const StreamedShape& shape) { return shape.is_gated ? shape.N / 2 : shape.N; }

/// Places that one row of a tile's boxes stands for.
int places_of_row(const StreamedShape& shape, const StreamedTile& tile) {
  return shape.is_gated ? 1 : tile.boxes;
}

int num_clusters_max(const StreamedDevice& device, int split) {
  // Clusters lie within a part of the GPU, where not all numbers of SMs are multiples
  // of four: 30 fit on an H200.
  if (split == 4) return device.num_sms / 4 * 10 / 11;
  return device.num_sms / split;
}

/// Rows of the boxes, so that all clusters have `rounds` tiles.
int64_t box_rows_of(const StreamedShape& shape, const StreamedDevice& device,
                    const StreamedChoice& choice) {
  const StreamedTile& tile = kStreamedTiles[static_cast<size_t>(choice.tile_index)];
  const int64_t tiles = int64_t{num_clusters_max(device, choice.split)} * choice.rounds;
  return round_up<int64_t>(ceil_div<int64_t>(num_places(shape), tiles * places_of_row(shape, tile)),
                           kBoxUnit);
}

int num_chunks(const StreamedShape& shape) {
  return static_cast<int>(
      ceil_div<int64_t>(shape.K * bits_of(shape.dtype) / 8, kStreamedChunkBytes));
}

}  // namespace

StreamedShared streamed_shared(const StreamedPlan& plan) {
  constexpr int kStagedTokens = 16;
  StreamedShared shared;
  const int chunk_bytes = plan.tile_outputs() * kStreamedChunkBytes;
  shared.w_stage_bytes = plan.stage_chunks * chunk_bytes;
  shared.x_stage_bytes = plan.stage_chunks * plan.tokens * kStreamedChunkBytes;
  shared.inputs = plan.num_stages * shared.w_stage_bytes;
  int end = shared.inputs + plan.num_stages * shared.x_stage_bytes;
  // Eight outputs and four pairs of tokens, which a warp stores at a time, lie in 32 banks.
  shared.staging_pitch = round_up(plan.tile_outputs(), 16) + 4;
  const bool has_one_tile = plan.num_tiles <= plan.num_clusters;
  shared.staging = has_one_tile && plan.split == 1 ? 0 : end;
  shared.staged_tokens = plan.split > 1 ? plan.tokens / plan.split
                         : has_one_tile ? plan.tokens
                                        : std::min(plan.tokens, kStagedTokens);
  end =
      std::max(end, shared.staging + plan.split * shared.staged_tokens * shared.staging_pitch * 4);
  shared.token_scales = end;
  shared.output_scales = shared.token_scales + plan.tokens * 8;
  shared.barriers = shared.output_scales + plan.tile_outputs() * 12;
  // Strips are read in full: those of the last chunk may reach behind it, for sums without use.
  const int read_end =
      shared.inputs + (strip_rows(plan.tile()) - plan.box_rows) * kStreamedChunkBytes;
  shared.num_bytes = kAlignment + std::max(shared.barriers + 2 * kStreamedStagesMax * 8, read_end);
  return shared;
}

bool can_be_streamed(const StreamedShape& shape, const StreamedDevice& device,
                     const StreamedChoice& choice) {
  const StreamedTile& tile = kStreamedTiles[static_cast<size_t>(choice.tile_index)];
  if (shape.is_gated && tile.boxes != 2) return false;
  if (choice.split > 1 && choice.rounds > 1) return false;
  if (num_clusters_max(device, choice.split) < 1) return false;
  if (box_rows_of(shape, device, choice) > strip_rows(tile)) return false;
  if (ceil_div(num_chunks(shape), choice.stage_chunks) < choice.split) return false;
  // Codes of 8 bits are added in pairs of chunks.
  if (shape.dtype == DType::kF8E4M3 && choice.stage_chunks % 2 != 0) return false;
  return streamed_plan_of(shape, device, choice).num_stages >= 2;
}

StreamedPlan streamed_plan_of(const StreamedShape& shape, const StreamedDevice& device,
                              const StreamedChoice& choice) {
  StreamedPlan plan;
  plan.tokens = tokens_of(shape.M);
  plan.tile_index = choice.tile_index;
  plan.box_rows = static_cast<int>(box_rows_of(shape, device, choice));
  plan.num_tiles = static_cast<int>(ceil_div<int64_t>(
      num_places(shape), int64_t{plan.box_rows} * places_of_row(shape, plan.tile())));
  plan.split = choice.split;
  plan.num_clusters = std::min(num_clusters_max(device, choice.split), plan.num_tiles);
  plan.stage_chunks = choice.stage_chunks;
  plan.num_steps = ceil_div(num_chunks(shape), choice.stage_chunks);
  plan.num_stages = 1;
  while (plan.num_stages < kStreamedStagesMax) {
    ++plan.num_stages;
    if (streamed_shared(plan).num_bytes > std::min(choice.shared_bytes, device.shared_bytes_max)) {
      --plan.num_stages;
      break;
    }
  }
  plan.early_stages =
      std::clamp(choice.early_bytes / streamed_shared(plan).w_stage_bytes, 1, plan.num_stages);
  return plan;
}

namespace {

StreamedChoice choose_by_rule(const StreamedShape& shape, const StreamedDevice& device) {
  StreamedChoice choice;
  const int64_t row_bytes = shape.K * bits_of(shape.dtype) / 8;
  const int64_t block_bytes = ceil_div<int64_t>(shape.N, device.num_sms) * row_bytes;
  const bool has_few_rows = shape.M <= kFewRows;
  choice.shared_bytes = device.shared_bytes_max;
  if (block_bytes <= kSmallBlockBytes) {
    if (!has_few_rows) choice.shared_bytes = kHalfOfSharedBytes;
  } else if (block_bytes <= kMediumBlockBytes) {
    choice.shared_bytes = kMediumSharedBytes;
  } else if (has_few_rows) {
    choice.early_bytes = choice.shared_bytes;
  }
  // The bits of a row depend on the split: neither M nor a gate has a say in it.
  const int64_t outputs = ceil_div<int64_t>(shape.N, device.num_sms);
  if (outputs <= kSplitOutputsMax && block_bytes > kSmallBlockBytes) choice.split = 2;
  for (choice.rounds = 1;; ++choice.rounds) {
    for (choice.tile_index = 0; choice.tile_index < static_cast<int>(kStreamedTiles.size());
         ++choice.tile_index) {
      const StreamedTile& tile = kStreamedTiles[static_cast<size_t>(choice.tile_index)];
      const int64_t chunk_bytes =
          box_rows_of(shape, device, choice) * tile.boxes * kStreamedChunkBytes;
      const int chunks_min = shape.dtype == DType::kF8E4M3 ? 2 : 1;
      // As large as copies should be, in as many stages as there must be.
      for (choice.stage_chunks = 4; choice.stage_chunks >= chunks_min; choice.stage_chunks /= 2) {
        if (!can_be_streamed(shape, device, choice)) continue;
        const bool is_large = choice.stage_chunks * chunk_bytes > kStageBytesMax ||
                              streamed_plan_of(shape, device, choice).num_stages < kStagesMin;
        if (!is_large || choice.stage_chunks == chunks_min) return choice;
      }
    }
    HALLEY_CHECK(choice.rounds < (1 << 20), shape.N, shape.K);
    if (choice.rounds == 1) choice.split = 1;
  }
}

}  // namespace

StreamedChoice choose_streamed(const StreamedShape& shape, const StreamedDevice& device) {
  HALLEY_CHECK(shape.M >= 1 && shape.M <= kStreamedRowsMax && shape.N >= 1 && shape.K >= 1, shape.M,
               shape.N, shape.K);
  const StreamedChoice by_rule = choose_by_rule(shape, device);
  const TunedPlan* tuned = find_tuned_plan(device.num_sms, tuned_gemm_of(shape), shape.M);
  if (tuned == nullptr) return by_rule;
  return streamed_choice_of(shape, device, by_rule.split, tuned->settings).value_or(by_rule);
}

StreamedPlan plan_streamed(const StreamedShape& shape, const StreamedDevice& device) {
  return streamed_plan_of(shape, device, choose_streamed(shape, device));
}

}  // namespace halley::cuda
