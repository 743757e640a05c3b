// A PeerExchange as kernel parameters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halley::cuda {

/// Limits the ranks of an exchange: the GPUs of a machine.
inline constexpr int kExchangeRanksMax = 8;

/// Counts a rank's calls; in its device memory, since graphs are replayed. Zero at the start.
struct alignas(16) ExchangeState {
  uint32_t buffer;       // the half of the memory that the next call uses: 0 or 1
  uint32_t has_failed;   // another rank has not come: no call waits any more
  uint32_t num_arrived;  // CTAs of the call that runs
  uint32_t unused;
};

/// In page-locked host memory.
struct ExchangeSignals {
  uint32_t missing_rank;  // 1 + the rank that did not come; written by the GPU
  uint32_t is_cancelled;  // written by the host: waiting ends
};

struct ExchangeArgs {
  /// memory[r]: rank r's [2, num_ranks, slot_bytes], at which this GPU reaches it. Slot s of a half
  /// is what rank s has sent.
  std::byte* memory[kExchangeRanksMax];
  ExchangeState* state;
  ExchangeSignals* signals;
  uint64_t timeout_ns;
  size_t slot_bytes;
  int rank, num_ranks;
  /// Not where ranks share a GPU: CTAs that wait for this kernel would keep out another rank's,
  /// for which this kernel waits.
  bool launches_dependents;
};

}  // namespace halley::cuda
