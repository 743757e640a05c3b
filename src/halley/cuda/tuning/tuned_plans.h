// The measured plans that planners look up.
#pragma once

#include <cstdint>
#include <span>

#include "halley/cuda/tuning/tuning_table.h"

namespace halley::cuda {

/// The tables that are part of the program: the layers of Llama-3 8B and 70B on an H200, and the
/// parts of them that 2 and 4 ranks have on H100s.
std::span<const TuningTable> built_in_tuned_plans();

/// The plan of the table that was set, else of a built-in one; of GPUs with as many SMs, since
/// schedules depend on them. None: null, and a planner's estimates decide. Valid for as long as the
/// process runs.
const TunedPlan* find_tuned_plan(int num_sms, const TunedGemm& gemm, int64_t M);

/// For the whole process, from now on. Any thread may call it while others look up plans.
void set_tuned_plans(TuningTable table);

}  // namespace halley::cuda
