// GPU memory that is allocated from CUDA once and suballocated.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace halley {

/// One allocation of cudaMalloc. Move-only. The contents are undefined until written.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// `what` names its purpose in messages: "weights". Throws DeviceError with the bytes that were
  /// requested and are free.
  DeviceBuffer(size_t num_bytes, const char* what);
  /// Views memory that somebody else owns and that must outlive it.
  static DeviceBuffer borrow(std::byte* data, size_t num_bytes) {
    DeviceBuffer buffer;
    buffer.data_ = {data, Free(/*whether=*/true)};
    buffer.num_bytes_ = num_bytes;
    return buffer;
  }

  std::byte* data() const { return data_.get(); }
  size_t num_bytes() const { return num_bytes_; }

 private:
  struct Free {
    Free() {}  // a default member would not be known yet where unique_ptr asks for it
    explicit Free(bool whether) : is_borrowed(whether) {}
    void operator()(std::byte* data) const;
    bool is_borrowed = false;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t num_bytes_ = 0;
};

/// A fixed budget of device memory with stack allocation. A step takes memory after mark() and
/// gives all of it back by release(): the next step gets the same addresses, which captured graphs
/// rely on. The work of one stream uses it in order, so nothing waits.
class DeviceArena {
 public:
  /// Alignment of every allocation: as the widest loads and TMA require.
  static constexpr size_t kAlignment = 256;

  DeviceArena(size_t num_bytes, const char* what) : buffer_(num_bytes, what), what_(what) {}
  /// Suballocates memory that begins at a multiple of kAlignment.
  DeviceArena(DeviceBuffer memory, const char* what) : buffer_(std::move(memory)), what_(what) {}

  /// Throws DeviceError if the budget is exhausted, which means that the memory plan was wrong.
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
