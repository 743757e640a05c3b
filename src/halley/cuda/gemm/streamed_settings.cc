#include "halley/cuda/gemm/streamed_settings.h"

#include <algorithm>
#include <string>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

struct NamedType {
  DType dtype;
  const char* kernel;
};
constexpr NamedType kTypes[] = {{DType::kF16, "streamed_f16"},
                                {DType::kBf16, "streamed_bf16"},
                                {DType::kF8E4M3, "streamed_fp8"},
                                {DType::kI8, "streamed_s8"}};

constexpr int kRoundsMax = 64;
constexpr int kStageChunksMax = 4;
constexpr int kEarlyBytes[] = {64 << 10, 256 << 10};
/// Half of an SM's shared memory, with which the next kernel's CTAs begin meanwhile; more; all.
constexpr int kSharedBytes[] = {100 << 10, 150 << 10, 1 << 30};

}  // namespace

TunedGemm tuned_gemm_of(const StreamedShape& shape) {
  TunedGemm gemm = {.N = shape.N, .K = shape.K};
  for (const NamedType& type : kTypes) {
    if (type.dtype == shape.dtype) gemm.kernel = str(type.kernel, shape.is_gated ? "_gated" : "");
  }
  return gemm;
}

std::optional<StreamedShape> streamed_shape_of(const TunedGemm& gemm, int64_t M) {
  if (M > kStreamedRowsMax) return {};
  for (const NamedType& type : kTypes) {
    if (gemm.kernel != type.kernel) continue;
    if (gemm.K * bits_of(type.dtype) % (kStreamedChunkBytes * 8) != 0) return {};
    return StreamedShape{.dtype = type.dtype, .M = M, .N = gemm.N, .K = gemm.K};
  }
  return {};
}

PlanSettings settings_of(const StreamedChoice& choice) {
  const StreamedTile& tile = kStreamedTiles[static_cast<size_t>(choice.tile_index)];
  return {{"warpgroups", tile.warpgroups},
          {"boxes", tile.boxes},
          {"strips", tile.strips},
          {"rounds", choice.rounds},
          {"stage_chunks", choice.stage_chunks},
          {"shared_bytes", choice.shared_bytes},
          {"early_bytes", choice.early_bytes}};
}

std::optional<StreamedChoice> streamed_choice_of(const StreamedShape& shape,
                                                 const StreamedDevice& device, int split,
                                                 const PlanSettings& settings) {
  const auto number = [&](const char* name) {
    return static_cast<int>(setting_of(settings, name, 0));
  };
  StreamedChoice choice = {.split = split,
                           .rounds = number("rounds"),
                           .stage_chunks = number("stage_chunks"),
                           .shared_bytes = number("shared_bytes"),
                           .early_bytes = number("early_bytes")};
  if (choice.rounds < 1 || choice.rounds > kRoundsMax) return {};
  if (choice.stage_chunks < 1 || choice.stage_chunks > kStageChunksMax) return {};
  for (size_t i = 0; i < kStreamedTiles.size(); ++i) {
    choice.tile_index = static_cast<int>(i);
    if (settings_of(choice) != settings) continue;
    if (can_be_streamed(shape, device, choice)) return choice;
  }
  return {};
}

std::vector<StreamedChoice> streamed_choices(const StreamedShape& shape,
                                             const StreamedDevice& device, int split) {
  constexpr int kTimedRoundsMax = 4;
  std::vector<StreamedChoice> choices;
  std::vector<StreamedPlan> plans;
  const auto add = [&](const StreamedChoice& choice) {
    if (!can_be_streamed(shape, device, choice)) return;
    const StreamedPlan plan = streamed_plan_of(shape, device, choice);
    if (std::find(plans.begin(), plans.end(), plan) != plans.end()) return;
    plans.push_back(plan);
    choices.push_back(choice);
  };
  for (int rounds = 1; rounds <= kTimedRoundsMax; ++rounds) {
    for (size_t tile = 0; tile < kStreamedTiles.size(); ++tile) {
      for (int stage_chunks = 1; stage_chunks <= kStageChunksMax; stage_chunks *= 2) {
        for (const int shared_bytes : kSharedBytes) {
          for (const int early_bytes : kEarlyBytes) {
            add({.tile_index = static_cast<int>(tile),
                 .split = split,
                 .rounds = rounds,
                 .stage_chunks = stage_chunks,
                 .shared_bytes = std::min(shared_bytes, device.shared_bytes_max),
                 .early_bytes = early_bytes});
          }
        }
      }
    }
  }
  return choices;
}

}  // namespace halley::cuda
