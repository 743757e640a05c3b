#include "halley/cuda/runtime/device_arena.h"

#include <algorithm>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_device.h"

namespace halley {

DeviceBuffer::DeviceBuffer(size_t num_bytes, const char* what) : num_bytes_(num_bytes) {
  if (num_bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, num_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is reported here; later launches must not see it
    throw DeviceError(str("GPU memory for ", what, ": expected ", num_bytes, " bytes, got ",
                          free_device_bytes(),
                          " that are free. Ask for less, or stop other "
                          "programs on the GPU."));
  }
  check_cuda(status, what);
  data_.reset(static_cast<std::byte*>(data));
}

void DeviceBuffer::Free::operator()(std::byte* data) const {
  if (!is_borrowed) cudaFree(data);
}

std::byte* DeviceArena::take(size_t num_bytes) {
  const size_t begin = num_used_;
  const size_t left = buffer_.num_bytes() - begin;
  if (num_bytes > left) {
    throw DeviceError(str("GPU memory for ", what_, ": expected at most ", left, " of ",
                          buffer_.num_bytes(), " bytes, got a demand for ", num_bytes,
                          ". Lower --max-num-batched-tokens, or raise --gpu-memory-utilization."));
  }
  num_used_ = begin + std::min(round_up(num_bytes, kAlignment), left);
  return buffer_.data() + begin;
}

std::byte* DeviceArena::take_elements(size_t count, size_t element_bytes) {
  const auto num_bytes = checked_mul(count, element_bytes);
  HALLEY_CHECK(num_bytes.has_value(), count, element_bytes);
  return take(*num_bytes);
}

void DeviceArena::release(size_t mark) {
  HALLEY_CHECK(mark <= num_used_, mark, num_used_);
  num_used_ = mark;
}

}  // namespace halley
