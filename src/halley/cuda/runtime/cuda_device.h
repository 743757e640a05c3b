// The GPUs of this machine, and why one cannot be used.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace halley {

/// Properties of one GPU.
struct CudaDeviceInfo {
  int ordinal = 0;  // as CUDA counts, after CUDA_VISIBLE_DEVICES
  std::string name = {};
  int compute_major = 0, compute_minor = 0;
  int num_sms = 0;
  size_t total_bytes = 0;
  size_t l2_bytes = 0;
  size_t shared_bytes_max = 0;  // largest dynamic shared memory of a CTA
};

/// Empty if CUDA is usable, else what is missing (a driver, a newer driver, a GPU) and what to do.
/// Costs a few milliseconds and initialises nothing.
std::string why_no_cuda();

/// Lists all GPUs. Throws DeviceError with why_no_cuda().
std::vector<CudaDeviceInfo> list_cuda_devices();

/// Empty if this build has code for the GPU, else the reason.
std::string why_not_this_gpu(const CudaDeviceInfo& device);

/// Makes a GPU the calling thread's current device and returns its properties. Every thread that
/// uses CUDA calls this first. Throws DeviceError if there is no such GPU, or this build has no
/// code for it.
CudaDeviceInfo use_cuda_device(int ordinal);

/// Each as "13.0": the newest CUDA that the driver supports, and the one that this program was
/// built with.
struct CudaVersions {
  std::string driver = {}, runtime = {};
};
CudaVersions cuda_versions();

/// Free bytes on the calling thread's GPU now; other programs count.
size_t free_device_bytes();

}  // namespace halley
