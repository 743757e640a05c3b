#include "halley/cuda/runtime/cuda_device.h"

#include <cuda_runtime_api.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

/// CUDA's integer version, 13000, as "13.0".
std::string version_text(int version) { return str(version / 1000, ".", version % 1000 / 10); }

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, ordinal), "attribute of a device");
  return value;
}

CudaDeviceInfo describe(int ordinal) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "properties of a device");
  return {.ordinal = ordinal,
          .name = properties.name,
          .compute_major = properties.major,
          .compute_minor = properties.minor,
          .num_sms = properties.multiProcessorCount,
          .total_bytes = properties.totalGlobalMem,
          .l2_bytes = static_cast<size_t>(properties.l2CacheSize),
          .shared_bytes_max =
              static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal))};
}

}  // namespace

std::string why_no_cuda() {
  int runtime = 0, driver = 0, num_devices = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "CUDA: expected an NVIDIA driver, got none. Install one, or run on the CPU.";
  }
  // A driver serves all runtimes of its major version, and older ones.
  if (driver / 1000 < runtime / 1000) {
    return str("CUDA: expected a driver for CUDA ", version_text(runtime), ", got one for ",
               version_text(driver), ". Update the driver, or run on the CPU.");
  }
  const cudaError_t status = cudaGetDeviceCount(&num_devices);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && num_devices == 0)) {
    return "CUDA: expected a GPU, got none. Check nvidia-smi and CUDA_VISIBLE_DEVICES, or run on "
           "the CPU.";
  }
  if (status != cudaSuccess) {
    return str("CUDA: expected a GPU, got ", cudaGetErrorName(status), ": ",
               cudaGetErrorString(status), ". Check nvidia-smi, or run on the CPU.");
  }
  return "";
}

std::vector<CudaDeviceInfo> list_cuda_devices() {
  const std::string rejection = why_no_cuda();
  if (!rejection.empty()) throw DeviceError(rejection);
  int num_devices = 0;
  check_cuda(cudaGetDeviceCount(&num_devices), "number of devices");
  std::vector<CudaDeviceInfo> devices;
  for (int i = 0; i < num_devices; ++i) devices.push_back(describe(i));
  return devices;
}

std::string why_not_this_gpu(const CudaDeviceInfo& device) {
  // Code for sm_90a runs on compute capability 9.0 and no other.
  if (device.compute_major == 9 && device.compute_minor == 0) return "";
  return str("GPU ", device.ordinal, " (", device.name,
             "): expected compute capability 9.0 (H100, H200), got ", device.compute_major, ".",
             device.compute_minor, ". Choose another GPU, or run on the CPU.");
}

CudaDeviceInfo use_cuda_device(int ordinal) {
  const std::vector<CudaDeviceInfo> devices = list_cuda_devices();
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) {
    throw DeviceError(str("GPU: expected a number from 0 to ", devices.size() - 1, ", got ",
                          ordinal, ". Check nvidia-smi and CUDA_VISIBLE_DEVICES."));
  }
  const CudaDeviceInfo& device = devices[static_cast<size_t>(ordinal)];
  const std::string rejection = why_not_this_gpu(device);
  if (!rejection.empty()) throw DeviceError(rejection);
  check_cuda(cudaSetDevice(ordinal), "choice of the device");
  return device;
}

CudaVersions cuda_versions() {
  int driver = 0, runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver), "version of the driver");
  check_cuda(cudaRuntimeGetVersion(&runtime), "version of the runtime");
  return {.driver = version_text(driver), .runtime = version_text(runtime)};
}

size_t free_device_bytes() {
  size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory of the device");
  return free_bytes;
}

}  // namespace halley
