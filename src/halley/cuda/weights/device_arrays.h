// Small arrays of a weight that are copied to the device together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/checked_math.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley::cuda {

/// Put together on the host and copied at once; 256 bytes apart.
class DeviceArrays {
 public:
  /// The place of an array; `pointer` is set when all have been copied.
  template <typename T>
  void add(std::span<const T> values, const T** pointer) {
    const size_t begin = round_up(bytes_.size(), DeviceArena::kAlignment);
    bytes_.resize(begin + values.size_bytes());
    std::memcpy(bytes_.data() + begin, values.data(), values.size_bytes());
    places_.push_back({begin, reinterpret_cast<const void**>(pointer)});
  }
  DeviceBuffer copy(const CudaStream& stream) {
    if (places_.empty()) return {};
    DeviceBuffer memory(std::max<size_t>(bytes_.size(), 1), "scales and biases");
    // In the stream: a copy beside it may still be under way when kernels of the stream read.
    check_cuda(cudaMemcpyAsync(memory.data(), bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice,
                               stream.get()),
               "copy of scales and biases");
    stream.synchronize();
    for (const Place& place : places_) *place.pointer = memory.data() + place.begin;
    return memory;
  }

 private:
  struct Place {
    size_t begin;
    const void** pointer;
  };
  std::vector<std::byte> bytes_;
  std::vector<Place> places_;
};

}  // namespace halley::cuda
