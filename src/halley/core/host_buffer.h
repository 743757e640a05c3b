// Host memory with an owner: aligned for vector loads, not initialised, huge pages where the
// kernel offers them; or a view of somebody else's.
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
  /// Views memory at a multiple of kAlignment that somebody else owns and that must outlive it.
  static HostBuffer borrow(std::byte* data, size_t num_bytes) {
    HostBuffer buffer;
    buffer.data_ = {data, Free(/*whether=*/true)};
    buffer.num_bytes_ = num_bytes;
    return buffer;
  }

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
    Free() {}  // a default member would not be known yet where unique_ptr asks for it
    explicit Free(bool whether) : is_borrowed(whether) {}
    void operator()(std::byte* data) const {
      if (!is_borrowed) std::free(data);
    }
    bool is_borrowed = false;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t num_bytes_ = 0;
};

}  // namespace halley
