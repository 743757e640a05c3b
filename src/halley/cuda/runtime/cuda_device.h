// The GPUs of this machine: which there are, and why one cannot be used.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace halley {

/// Facts of one GPU.
struct CudaDeviceInfo {
  int ordinal = 0;  // as CUDA counts, after CUDA_VISIBLE_DEVICES
  std::string name = {};
  int compute_major = 0, compute_minor = 0;
  int num_sms = 0;
  size_t total_bytes = 0;
  size_t l2_bytes = 0;
  size_t shared_bytes_max = 0;  // of a block that asks for it
};

/// Empty: CUDA can be used. Otherwise what is missing (a driver, a newer driver, a GPU) and what to
/// do. Costs a few milliseconds, and initialises nothing.
std::string why_no_cuda();

/// All GPUs. Throws DeviceError with why_no_cuda().
std::vector<CudaDeviceInfo> list_cuda_devices();

/// Empty: this build has code for the GPU. Otherwise why not.
std::string why_not_this_gpu(const CudaDeviceInfo& device);

/// Makes a GPU the calling thread's, and says what it is. Every thread that uses CUDA calls this
/// first. Throws DeviceError where there is none, none of that number, or none that this build has
/// code for.
CudaDeviceInfo use_cuda_device(int ordinal);

/// "13.0" each: the newest CUDA that the driver supports, and that which this program was built
/// with.
struct CudaVersions {
  std::string driver = {}, runtime = {};
};
CudaVersions cuda_versions();

/// Bytes that are free on the calling thread's GPU now; other programs count.
size_t free_device_bytes();

}  // namespace halley
