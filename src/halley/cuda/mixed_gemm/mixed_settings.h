// A mixed plan as settings of a table of measured plans (cuda/tuning).
#pragma once

#include <optional>

#include "halley/cuda/mixed_gemm/mixed_plan.h"
#include "halley/cuda/tuning/tuning_table.h"

namespace halley::cuda {

/// All kinds, each with its name_of().
inline constexpr MixedKind kMixedKinds[] = {MixedKind::kU4S8,  MixedKind::kU4GroupS8,
                                            MixedKind::kU4F16, MixedKind::kU4Bf16,
                                            MixedKind::kU8F16, MixedKind::kU8Bf16};

TunedGemm tuned_gemm_of(const MixedShape& shape);
/// None: it is not a kind's kernel, or its groups are not of 32, 64 or 128 inputs.
std::optional<MixedShape> mixed_shape_of(const TunedGemm& gemm, int64_t M);

/// "is_small_m": 1, the kernel for at most eight rows. Or "tokens" and "outputs" of the tile,
/// "cluster_size", "ctas_per_sm", and "is_stream_k": 1 where last tiles are shared.
PlanSettings settings_of(const MixedPlan& plan);

/// The plan that has exactly these settings. None: no such tile is compiled, or it does not fit the
/// shape or the device.
std::optional<MixedPlan> mixed_plan_of(const MixedShape& shape, const MixedDevice& device,
                                       const PlanSettings& settings);

}  // namespace halley::cuda
