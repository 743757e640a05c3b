#include "halley/cuda/testing/device_matrix.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/core/element.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xA5};

void store(DType dtype, float value, std::byte* to) {
  const auto put = [&](auto bits) { std::memcpy(to, &bits, sizeof(bits)); };
  switch (dtype) {
    case DType::kF32:
      return put(value);
    case DType::kF16:
      return put(f32_to_f16(value));
    case DType::kBf16:
      return put(f32_to_bf16(value));
    case DType::kF8E4M3:
      return put(f32_to_e4m3(value));
    case DType::kI8:
      return put(static_cast<int8_t>(std::isnan(value) ? -128 : std::lrint(value)));
    case DType::kI32:
      return put(std::isnan(value) ? std::numeric_limits<int32_t>::min()
                                   : static_cast<int32_t>(std::lrint(value)));
    default:
      HALLEY_CHECK(false, name_of(dtype));
  }
}

}  // namespace

void copy_to_device(std::byte* device, const void* host, size_t num_bytes) {
  if (num_bytes == 0) return;
  check_cuda(cudaMemcpy(device, host, num_bytes, cudaMemcpyHostToDevice), "copy to the device");
  // cudaMemcpy may return before the device has the data; other streams do not wait for the rest.
  check_cuda(cudaDeviceSynchronize(), "copy to the device");
}

DeviceMatrix::DeviceMatrix(DType dtype, int64_t num_rows, int64_t num_cols, int64_t row_gap)
    : dtype_(dtype),
      num_rows_(num_rows),
      num_cols_(num_cols),
      row_stride_(num_cols + row_gap),
      buffer_(2 * kGuardBytes + static_cast<size_t>(num_rows * row_stride_ * bits_of(dtype) / 8),
              "a test's matrix") {
  std::vector<std::byte> bytes(buffer_.num_bytes(), kGuard);
  for (int64_t m = 0; m < num_rows; ++m) {
    for (int64_t i = 0; i < num_cols; ++i) {
      store(dtype, std::numeric_limits<float>::quiet_NaN(), bytes.data() + offset_of(m, i));
    }
  }
  write(bytes);
}

size_t DeviceMatrix::offset_of(int64_t row, int64_t column) const {
  return kGuardBytes + static_cast<size_t>((row * row_stride_ + column) * bits_of(dtype_) / 8);
}

Matrix DeviceMatrix::matrix() const {
  return {buffer_.data() + offset_of(0, 0), dtype_, num_rows_, num_cols_, row_stride_};
}

void DeviceMatrix::write(const std::vector<std::byte>& bytes) {
  copy_to_device(buffer_.data(), bytes.data(), bytes.size());
}

std::vector<std::byte> DeviceMatrix::read(const CudaStream& stream) const {
  std::vector<std::byte> bytes(buffer_.num_bytes());
  stream.synchronize();
  check_cuda(cudaMemcpy(bytes.data(), buffer_.data(), bytes.size(), cudaMemcpyDeviceToHost),
             "copy to the host");
  return bytes;
}

void DeviceMatrix::set(const std::vector<float>& values) {
  HALLEY_CHECK(values.size() == static_cast<size_t>(num_rows_ * num_cols_), values.size());
  std::vector<std::byte> bytes(buffer_.num_bytes(), kGuard);
  for (int64_t m = 0; m < num_rows_; ++m) {
    for (int64_t i = 0; i < num_cols_; ++i) {
      store(dtype_, values[static_cast<size_t>(m * num_cols_ + i)], bytes.data() + offset_of(m, i));
    }
  }
  write(bytes);
}

void DeviceMatrix::fill_normal(uint32_t seed, float deviation, float mean) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(mean, deviation);
  std::vector<float> values(static_cast<size_t>(num_rows_ * num_cols_));
  for (float& value : values) value = distribution(random);
  set(values);
}

std::vector<float> DeviceMatrix::get(const CudaStream& stream) const {
  const std::vector<std::byte> bytes = read(stream);
  std::vector<float> values;
  values.reserve(static_cast<size_t>(num_rows_ * num_cols_));
  for (int64_t m = 0; m < num_rows_; ++m) {
    for (int64_t i = 0; i < num_cols_; ++i) {
      values.push_back(element_to_f32(dtype_, bytes.data() + offset_of(m, i)));
    }
  }
  return values;
}

bool DeviceMatrix::guards_are_intact(const CudaStream& stream) const {
  std::vector<std::byte> bytes = read(stream);
  const auto element_bytes = static_cast<size_t>(bits_of(dtype_) / 8);
  for (int64_t m = 0; m < num_rows_; ++m) {
    std::memset(bytes.data() + offset_of(m, 0), static_cast<int>(kGuard),
                static_cast<size_t>(num_cols_) * element_bytes);
  }
  for (const std::byte byte : bytes) {
    if (byte != kGuard) return false;
  }
  return true;
}

}  // namespace halley
