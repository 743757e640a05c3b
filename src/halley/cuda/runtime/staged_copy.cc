#include "halley/cuda/runtime/staged_copy.h"

#include <algorithm>
#include <cstring>

#include "halley/base/checked_math.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

/// Bytes that one thread copies at a time: enough pieces for page faults of the file mapping to run
/// in parallel.
constexpr size_t kPieceBytes = size_t{1} << 20;

void copy_in_parallel(ThreadPool& pool, std::byte* to, const std::byte* from, size_t num_bytes) {
  const auto num_pieces = static_cast<int64_t>(ceil_div(num_bytes, kPieceBytes));
  pool.run(num_pieces, [&](int64_t piece, int) {
    const size_t begin = static_cast<size_t>(piece) * kPieceBytes;
    std::memcpy(to + begin, from + begin, std::min(kPieceBytes, num_bytes - begin));
  });
}

}  // namespace

StagedCopy::StagedCopy(ThreadPool& pool, const CudaStream& stream) : pool_(pool), stream_(stream) {
  for (size_t i = 0; i < kNumSlots; ++i) {
    slots_.push_back({.buffer = PinnedBuffer(kSlotBytes), .is_empty = CudaEvent()});
  }
}

StagedCopy::~StagedCopy() {
  // An error shows where the copied data are used; a destructor cannot report it.
  for (const Slot& slot : slots_) static_cast<void>(cudaEventSynchronize(slot.is_empty.get()));
}

void StagedCopy::copy(std::byte* device, const std::byte* host, size_t num_bytes) {
  for (size_t begin = 0; begin < num_bytes; begin += kSlotBytes) {
    const size_t count = std::min(kSlotBytes, num_bytes - begin);
    const Slot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    slot.is_empty.synchronize();
    copy_in_parallel(pool_, slot.buffer.data(), host + begin, count);
    check_cuda(cudaMemcpyAsync(device + begin, slot.buffer.data(), count, cudaMemcpyHostToDevice,
                               stream_.get()),
               "copy to the device");
    stream_.record(slot.is_empty);
  }
}

}  // namespace halley
