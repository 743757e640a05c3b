// Owning streams and events.
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

namespace halley {

/// A point in a stream's work. Move-only.
class CudaEvent {
 public:
  /// kYes: with timing, for measurements; kNo: cheaper, for ordering alone.
  enum class Time : bool { kNo, kYes };
  explicit CudaEvent(Time time = Time::kNo);

  cudaEvent_t get() const { return event_.get(); }
  /// Blocks until all work before the last record() has run; returns at once if there was none.
  void synchronize() const;
  /// Whether synchronize() would return at once.
  bool is_reached() const;
  /// Milliseconds from `start` to this event; both with timing, recorded and completed.
  float milliseconds_since(const CudaEvent& start) const;

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

/// A queue of work on the GPU that does not wait for the default stream. Move-only. Passed
/// explicitly to everything that launches.
class CudaStream {
 public:
  CudaStream();
  /// Wraps a stream that somebody else owns and that must outlive this; null is the default stream.
  static CudaStream borrow(cudaStream_t stream) { return CudaStream(stream); }

  cudaStream_t get() const { return stream_.get(); }
  /// Blocks until the stream is empty. Throws DeviceError for errors of its work.
  void synchronize() const;
  void record(const CudaEvent& event) const;
  /// Work queued from now on runs after the event.
  void wait(const CudaEvent& event) const;

 private:
  struct Destroy {
    Destroy() {}  // a default member would not be known yet where unique_ptr asks for it
    explicit Destroy(bool whether) : is_borrowed(whether) {}
    void operator()(cudaStream_t stream) const {
      if (!is_borrowed) cudaStreamDestroy(stream);
    }
    bool is_borrowed = false;
  };
  explicit CudaStream(cudaStream_t stream) : stream_(stream, Destroy(true)) {}

  std::unique_ptr<CUstream_st, Destroy> stream_;
};

}  // namespace halley
