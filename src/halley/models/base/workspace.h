// The decoder's buffers for activations: one per purpose, kept between steps, so that a step in
// steady state allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "halley/core/host_buffer.h"
#include "halley/core/matrix.h"

namespace halley {

/// The purpose of a buffer. Two that are alive at once have different slots.
enum class Slot : uint8_t {
  kHidden,    // the residual stream
  kNormed,    // input of a block
  kBlockOut,  // what a block adds
  kQkv,
  kAttention,
  kGateUp,
  kMlp,
  kRouterLogits,
  kExpertIn,  // rows sorted by expert
  kExpertOut,
  kLast,        // rows whose logits are wanted
  kGathered,    // an input of all ranks
  kLogits,      // of this rank's vocabulary
  kLowRank,     // A x of an adapter
  kLowRankOut,  // B (A x)
  kCount
};

/// Grows and never shrinks. Contents are undefined after take().
class Workspace {
 public:
  /// A dense f32 matrix in the slot's buffer, valid until the slot is taken again.
  Matrix take(Slot slot, int64_t num_rows, int64_t num_cols) {
    HostBuffer& buffer = buffers_[static_cast<size_t>(slot)];
    const size_t num_bytes = static_cast<size_t>(num_rows * num_cols) * sizeof(float);
    if (buffer.num_bytes() < num_bytes) {
      buffer = HostBuffer();  // free the old one first: the peak is the larger of the two
      buffer = HostBuffer(num_bytes);
    }
    return f32_matrix(buffer.as<float>().data(), num_rows, num_cols);
  }

 private:
  std::array<HostBuffer, static_cast<size_t>(Slot::kCount)> buffers_;
};

}  // namespace halley
