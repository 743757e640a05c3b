// Page-locked host memory for asynchronous copies.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace halley {

/// Page-locked memory. Move-only. The contents are undefined until written.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// Throws DeviceError if the allocation fails.
  explicit PinnedBuffer(size_t num_bytes);

  std::byte* data() const { return data_.get(); }
  size_t num_bytes() const { return num_bytes_; }
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_.get()), num_bytes_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t num_bytes_ = 0;
};

}  // namespace halley
