#include "halley/cuda/runtime/pinned_buffer.h"

#include <cuda_runtime_api.h>

#include "halley/cuda/runtime/cuda_check.h"

namespace halley {

PinnedBuffer::PinnedBuffer(size_t num_bytes) : num_bytes_(num_bytes) {
  if (num_bytes == 0) return;
  void* data = nullptr;
  check_cuda(cudaMallocHost(&data, num_bytes), "page-locked host memory");
  data_.reset(static_cast<std::byte*>(data));
}

void PinnedBuffer::Free::operator()(std::byte* data) const { cudaFreeHost(data); }

}  // namespace halley
