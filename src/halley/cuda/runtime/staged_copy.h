// Copies of large pageable memory (a mapped checkpoint) to the GPU.
#pragma once

#include <cstddef>
#include <vector>

#include "halley/core/thread_pool.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/pinned_buffer.h"

namespace halley {

/// Threads fill page-locked slots, which also reads the file, while the GPU copies from several
/// others. One caller at a time.
class StagedCopy {
 public:
  static constexpr size_t kSlotBytes = size_t{16} << 20;
  static constexpr size_t kNumSlots = 4;

  /// `pool` and `stream` must outlive it.
  StagedCopy(ThreadPool& pool, const CudaStream& stream);
  /// Waits for the copies in flight.
  ~StagedCopy();
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  /// Queues the copy of `num_bytes` from `host` to `device` on the stream. `host` may be released
  /// when it returns; work that reads `device` must follow on the stream.
  void copy(std::byte* device, const std::byte* host, size_t num_bytes);

 private:
  struct Slot {
    PinnedBuffer buffer;
    CudaEvent is_empty;
  };
  ThreadPool& pool_;
  const CudaStream& stream_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

}  // namespace halley
