// GPU memory, taken from CUDA once and given out in pieces.
#pragma once

#include <cstddef>
#include <memory>

namespace halley {

/// One piece of device memory from cudaMalloc. Move-only. The contents are undefined until written.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `what` it is for, for messages: "weights". Throws DeviceError with the bytes that were asked
  /// for and are free.
  DeviceBuffer(size_t num_bytes, const char* what);

  std::byte* data() const { return data_.get(); }
  size_t num_bytes() const { return num_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t num_bytes_ = 0;
};

/// A fixed budget of device memory that is given out front to back. What a step needs is taken
/// after mark() and given back, all of it, by release(): the next step's pieces are the same
/// addresses, which captured graphs rely on. Work of one stream uses it in order, so nothing waits.
class DeviceArena {
 public:
  /// Of every piece: what the widest loads and the tensor copy engine ask for.
  static constexpr size_t kAlignment = 256;

  DeviceArena(size_t num_bytes, const char* what) : buffer_(num_bytes, what), what_(what) {}

  /// Throws DeviceError where the budget is used up: a plan that was wrong.
  std::byte* take(size_t num_bytes);
  template <typename T>
  T* take(size_t count) {
    return reinterpret_cast<T*>(take_elements(count, sizeof(T)));
  }

  size_t mark() const { return num_used_; }
  /// Gives back what was taken since that mark().
  void release(size_t mark);

  size_t num_bytes() const { return buffer_.num_bytes(); }

 private:
  std::byte* take_elements(size_t count, size_t element_bytes);

  DeviceBuffer buffer_;
  const char* what_;
  size_t num_used_ = 0;
};

}  // namespace halley
