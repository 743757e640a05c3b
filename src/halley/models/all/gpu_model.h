// Planning and loading a model for a GPU: gpu_model_cuda.cc where the build has CUDA,
// gpu_model_none.cc where it has not.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/exec_context.h"
#include "halley/models/all/load_model.h"
#include "halley/models/base/decoder_parts.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/quant/base/linear_loader.h"

namespace halley {

/// Plans the kernels of every part (list_decoder_parts()) that is a linear layer, or a tied
/// embedding, from headers alone; empty for other parts. Throws UnsupportedError where the build
/// has no CUDA.
std::vector<std::vector<GpuLinearPlan>> plan_gpu_parts(const DecoderConfig& config,
                                                       std::span<const DecoderPart> parts,
                                                       const LinearLoading& loading,
                                                       DType activation_dtype);

/// Throws UnsupportedError where the GPU's kernels do not support the model, or the build has no
/// CUDA.
void check_gpu_model(const DecoderConfig& config, DType activation_dtype);

/// Loads the model as `plan` says, and adds to the plan which kernels run.
std::unique_ptr<CausalLm> load_gpu_model(ExecContext& context, const LinearLoading& loading,
                                         const LoadOptions& options, const PartLoaded& on_part,
                                         ModelPlan& plan);

}  // namespace halley
