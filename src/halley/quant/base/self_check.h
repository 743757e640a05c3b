// The check at load that a kernel computes what the checkpoint says: a wrong kernel or a wrong
// packing would otherwise be noticed by nobody but the reader of the text.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/quant/base/stored_outputs.h"

namespace halley {

/// How many of a weight's outputs are compared, at most.
inline constexpr int64_t kCheckedOutputs = 8;

/// Runs the kernel on the packed weight and two rows of synthetic inputs, and compares `outputs`
/// with f64 sums over the checkpoint's own values (in the kernel's precision). Throws DeviceError
/// that names the layer, the kernel, the output, expected and got.
void self_check(ExecContext& context, const std::string& layer, const PackedWeight& weight,
                const GemmKernel& kernel, std::span<const StoredOutput> outputs);

}  // namespace halley
