#include "halley/cuda/runtime/shared_bytes.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley {

void raise_shared_bytes(const void* kernel, int num_bytes, const char* name) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, int> raised;  // by device and kernel
  int device = 0;
  check_cuda(cudaGetDevice(&device), "current device");
  const std::lock_guard lock(mutex);
  int& before = raised[{device, kernel}];
  if (num_bytes <= before) return;
  const std::string what = str("shared memory of ", name);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, num_bytes),
             what.c_str());
  before = num_bytes;
}

}  // namespace halley
