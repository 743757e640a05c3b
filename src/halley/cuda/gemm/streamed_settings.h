// The choice of a streamed plan as settings of a table of measured plans (cuda/tuning).
#pragma once

#include <optional>
#include <vector>

#include "halley/cuda/gemm/streamed_plan.h"
#include "halley/cuda/tuning/tuning_table.h"

namespace halley::cuda {

/// The kernel is "streamed_f16", "streamed_bf16", "streamed_fp8" or "streamed_s8", and
/// "_gated" behind it where outputs are gated.
TunedGemm tuned_gemm_of(const StreamedShape& shape);
/// Not gated. None: it is no streamed kernel, M is above kStreamedRowsMax, or rows of K inputs are
/// no multiple of kStreamedChunkBytes.
std::optional<StreamedShape> streamed_shape_of(const TunedGemm& gemm, int64_t M);

/// "warpgroups", "boxes" and "strips" of the tile, "rounds", "stage_chunks", "shared_bytes" and
/// "early_bytes". The split is not among them: the bits of a row depend on it, so that it follows
/// from the weight alone.
PlanSettings settings_of(const StreamedChoice& choice);

/// The choice that has exactly these settings, and this split. None: it cannot be made for the
/// shape (can_be_streamed()).
std::optional<StreamedChoice> streamed_choice_of(const StreamedShape& shape,
                                                 const StreamedDevice& device, int split,
                                                 const PlanSettings& settings);

/// All choices with this split whose plans differ: for tuning.
std::vector<StreamedChoice> streamed_choices(const StreamedShape& shape,
                                             const StreamedDevice& device, int split);

}  // namespace halley::cuda
