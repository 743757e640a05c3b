// The check at load that a kernel computes what its weight says: a wrong kernel or a wrong packing
// would otherwise be noticed by nobody but the reader of the text.
#pragma once

#include <string>

#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/kernels/gemm/gemm.h"

namespace halley {

/// Runs the kernel on a few rows of synthetic inputs and compares some outputs with the f64
/// reference on the same packed weight. Throws DeviceError that names the layer, the kernel, the
/// output, expected and got.
void self_check(ExecContext& context, const std::string& layer, const PackedWeight& weight,
                const GemmKernel& kernel);

}  // namespace halley
