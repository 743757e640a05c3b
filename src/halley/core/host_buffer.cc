#include "halley/core/host_buffer.h"

#include <sys/mman.h>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

HostBuffer::HostBuffer(size_t num_bytes) : num_bytes_(num_bytes) {
  if (num_bytes == 0) return;
  // Large buffers are streamed through once a step: 4 kB pages would cost a TLB miss each.
  const bool is_large = num_bytes >= 2 * kHugePageBytes;
  const size_t alignment = is_large ? kHugePageBytes : kAlignment;
  void* data = num_bytes > SIZE_MAX - alignment
                   ? nullptr
                   : std::aligned_alloc(alignment, round_up(num_bytes, alignment));
  if (data == nullptr) {
    throw DeviceError(str("host memory: cannot allocate ", num_bytes,
                          " bytes. Use a smaller model, a shorter context or fewer sequences."));
  }
  if (is_large) ::madvise(data, round_up(num_bytes, alignment), MADV_HUGEPAGE);
  data_.reset(static_cast<std::byte*>(data));
}

}  // namespace halley
