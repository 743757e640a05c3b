// Measured plans of a GPU's GEMMs, for the layers of a model.
#pragma once

#include <vector>

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/tuning/tuning_table.h"
#include "halley/models/all/load_model.h"

namespace halley {

/// The GEMMs of the model's layers whose kernels have measured plans, each once.
std::vector<cuda::TunedGemm> tuned_gemms_of(const ModelPlan& plan);

/// Sets the measured plans with which the model will run, from the file or the cache that the
/// options name, measures those that are missing where the options ask for it, and says in
/// plan.tuned_plans what it did. A cache that cannot be read is a warning of the plan. Threads that
/// load other ranks of the model wait for each other. Throws InputError.
void prepare_tuned_plans(const LoadOptions& options, const CudaDeviceInfo& device, ModelPlan& plan);

}  // namespace halley
