// For tests: a routing of the device as the CPU has it.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/kernels/moe/moe.h"

namespace halley::cuda {

template <typename T>
std::vector<T> read_array(const CudaStream& stream, const T* device, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  stream.synchronize();
  check_cuda(cudaMemcpy(values.data(), device, values.size() * sizeof(T), cudaMemcpyDeviceToHost),
             "copy to the host");
  return values;
}

inline MoeRouting read_routing(const CudaStream& stream, const DeviceRouting& routing) {
  const int64_t num_slots = routing.num_slots();
  const std::vector<int32_t> begin =
      read_array(stream, routing.expert_begin, routing.num_experts + 1);
  return {.num_experts_per_token = routing.num_experts_per_token,
          .expert_of = read_array(stream, routing.expert_of, num_slots),
          .weight_of = read_array(stream, routing.weight_of, num_slots),
          .expert_begin = {begin.begin(), begin.end()},
          .slot_row = read_array(stream, routing.slot_row, num_slots),
          .row_slots = read_array(stream, routing.row_slots, num_slots)};
}

}  // namespace halley::cuda
