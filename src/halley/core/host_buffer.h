// Host memory with an owner: aligned for vector loads, not initialised, huge pages where the
// kernel offers them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

namespace halley {

/// Move-only. The contents are undefined until written.
class HostBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  HostBuffer() = default;
  /// Throws DeviceError where the memory cannot be had.
  explicit HostBuffer(size_t num_bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t num_bytes() const { return num_bytes_; }

  /// The memory as elements of T.
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), num_bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), num_bytes_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t num_bytes_ = 0;
};

}  // namespace halley
