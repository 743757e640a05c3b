// Which kernels multiply 4-bit weights on which GPU: a table in order of preference. All of them
// read the same packed weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "halley/cuda/runtime/cuda_device.h"

namespace halley::cuda {

enum class W4Kernels : uint8_t {
  kHopper,  // cuda/mixed_gemm and cuda/w4ax_gemm
  kMma,     // this folder
};

struct W4KernelRow {
  W4Kernels kernels = W4Kernels::kHopper;
  /// By which it is asked for.
  const char* name = "";
  /// 10 * major + minor; both ends included.
  int capability_min = 0, capability_max = 0;
};

/// The first row that runs on the GPU, or null.
const W4KernelRow* find_w4_kernels(const CudaDeviceInfo& device);

/// Empty: a row of the table runs on the GPU. Otherwise "expected compute capability ..., got ...".
std::string why_no_w4_kernels(const CudaDeviceInfo& device);

/// The row of this name, also where a better-placed one runs. Throws InputError where there is
/// none, UnsupportedError where the GPU does not run it.
const W4KernelRow& w4_kernels_named(const CudaDeviceInfo& device, std::string_view name);

}  // namespace halley::cuda
