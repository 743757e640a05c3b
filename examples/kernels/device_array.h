// An array on the GPU, for the examples.
#pragma once

#include <stdexcept>
#include <vector>

#include <cuda_runtime_api.h>

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// An array on the GPU.
template <typename T>
struct DeviceArray {
  explicit DeviceArray(size_t count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data = nullptr;
};
