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

/// Where small arrays lie behind one another: 256 bytes apart.
class ArraySizes {
 public:
  /// The place of an array of so many bytes.
  size_t add(size_t num_bytes) {
    const size_t begin = round_up(end_, DeviceArena::kAlignment);
    end_ = begin + num_bytes;
    return begin;
  }
  size_t num_bytes() const { return end_; }

 private:
  size_t end_ = 0;
};

/// Put together on the host and copied at once.
class DeviceArrays {
 public:
  /// The place of an array; `pointer` is set when all have been copied.
  template <typename T>
  void add(std::span<const T> values, const T** pointer) {
    const size_t begin = sizes_.add(values.size_bytes());
    bytes_.resize(sizes_.num_bytes());
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
  ArraySizes sizes_;
  std::vector<std::byte> bytes_;
  std::vector<Place> places_;
};

}  // namespace halley::cuda
