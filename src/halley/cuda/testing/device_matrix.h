// For tests: a matrix in device memory, NaN where nothing was written, with guard bytes around and
// between the rows that a kernel must leave alone.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley {

/// [num_rows, num_cols] of f32, f16, bf16, e4m3, s8 or i32; rows num_cols + row_gap elements apart.
class DeviceMatrix {
 public:
  /// With the default gap, rows are as aligned as the first one if num_cols allows it.
  DeviceMatrix(DType dtype, int64_t num_rows, int64_t num_cols, int64_t row_gap = 16);

  /// The device's matrix.
  Matrix matrix() const;

  /// Sets all elements, rounded to the type, and copies them to the device.
  void set(const std::vector<float>& values);
  void fill_normal(uint32_t seed, float deviation = 1.0f, float mean = 0.0f);

  /// The device's elements as f32, [num_rows, num_cols] without gaps.
  std::vector<float> get(const CudaStream& stream) const;
  /// Whether the bytes around and between the rows are unchanged.
  bool guards_are_intact(const CudaStream& stream) const;

  int64_t num_rows() const { return num_rows_; }
  int64_t num_cols() const { return num_cols_; }

 private:
  std::vector<std::byte> read(const CudaStream& stream) const;
  void write(const std::vector<std::byte>& bytes);
  size_t offset_of(int64_t row, int64_t column) const;

  DType dtype_;
  int64_t num_rows_, num_cols_, row_stride_;
  DeviceBuffer buffer_;
};

/// An array in device memory.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values);
  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }

 private:
  DeviceBuffer buffer_;
};

/// Copies before the work of any stream; for tests alone, since it waits.
void copy_to_device(std::byte* device, const void* host, size_t num_bytes);

template <typename T>
DeviceArray<T>::DeviceArray(const std::vector<T>& values)
    : buffer_(values.size() * sizeof(T), "a test's array") {
  copy_to_device(buffer_.data(), values.data(), values.size() * sizeof(T));
}

}  // namespace halley
