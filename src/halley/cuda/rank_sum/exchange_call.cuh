// One call of an exchange between ranks: each sends its rows to all others, and waits for theirs.
//
// Words of memory that no rank has written hold a sentinel. A receiver polls until a vector has
// none, so that data are their own flags: there is no barrier, and one transfer is all the latency.
//
// The memory has two halves, which calls use by turns. The thread that has received a vector puts
// the sentinel back at once. So both halves are empty again when their next turn comes:
// - A rank sends in call i + 1 only when all of its call i is done (griddepcontrol_wait()), and
//   call i is done only when it has received from all ranks what they sent in call i. So no rank is
//   more than one call ahead of another, and the two are in different halves.
// - Rank A sends to rank B in call i + 2, into the half of call i, when it has received what B sent
//   in call i + 1. B sent that when its call i was done, its sentinels of call i in its memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/ops/elements.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/registers.cuh"
#include "halley/cuda/rank_sum/exchange_args.h"

namespace halley::cuda {

/// Two 16-bit -0.0. Senders replace it by two 0.0.
inline constexpr uint32_t kSentinel = 0x80008000;

/// 2 * kWords 16-bit elements.
template <int kWords>
struct alignas(4 * kWords) Words {
  using Bits =
      std::conditional_t<kWords == 4, uint4, std::conditional_t<kWords == 2, uint2, uint1>>;
  uint32_t word[kWords];

  /// One access each; an assignment of the array would be one of each word.
  __device__ static Words load(const void* from) {
    return __builtin_bit_cast(Words, *static_cast<const Bits*>(from));
  }
  __device__ void store(void* to) const {
    *static_cast<Bits*>(to) = __builtin_bit_cast(Bits, *this);
  }

  __device__ bool has_sentinel() const {
    bool has = false;
#pragma unroll
    for (int i = 0; i < kWords; ++i) has |= word[i] == kSentinel;
    return has;
  }
  __device__ Words without_sentinel() const {
    Words other;
#pragma unroll
    for (int i = 0; i < kWords; ++i) other.word[i] = word[i] == kSentinel ? 0 : word[i];
    return other;
  }
  /// A choice of registers: an assignment under a condition would index an array in memory.
  __device__ static Words chosen(bool is_first, const Words& first, const Words& second) {
    Words words;
#pragma unroll
    for (int i = 0; i < kWords; ++i) words.word[i] = is_first ? first.word[i] : second.word[i];
    return words;
  }
  __device__ static Words sentinel() {
    Words all;
#pragma unroll
    for (int i = 0; i < kWords; ++i) all.word[i] = kSentinel;
    return all;
  }
};

/// Accesses of which each word is whole, past the L1 cache.
template <int kWords>
__device__ inline void ld_relaxed_sys(const void* from, Words<kWords>& x) {
  ptx::ld_global<ptx::RelaxedSys, kWords>(from, x.word);
}
template <int kWords>
__device__ inline void st_relaxed_sys(void* to, const Words<kWords>& x) {
  ptx::st_global<ptx::RelaxedSys, kWords>(to, x.word);
}

/// A kernel begins with it.
__device__ inline void launch_dependents(const ExchangeArgs& args) {
  if (args.launches_dependents) ptx::griddepcontrol_launch_dependents();
}

/// One thread's part of a call, from ptx::griddepcontrol_wait() on. All CTAs of the grid are
/// resident. The threads send() everything, call finish_send(), and receive() each vector once.
template <int kRanksMax>
class ExchangeCall {
 public:
  __device__ explicit ExchangeCall(const ExchangeArgs& args) : args_(args) {
    Words<4> state;
    ld_relaxed_sys(args.state, state);
    buffer_ = state.word[0];
    has_failed_ = state.word[1] != 0;
  }

  /// Sends a vector without sentinels to all others; `offset` bytes into this rank's slot. A rank
  /// that has failed sends nothing: it might be further ahead than one call.
  template <typename V>
  __device__ void send(const V& own, uint32_t offset) const {
    if (has_failed_) return;
    const size_t at = slot(args_.rank) + offset;
#pragma unroll
    for (int r = 0; r < kRanksMax; ++r) {
      if (is_other(r)) st_relaxed_sys(args_.memory[r] + at, own);
    }
  }

  /// By all threads of the CTA. The last CTA makes the next call the next one.
  __device__ void finish_send() {
    __syncthreads();  // all threads have read the state
    if (threadIdx.x == 0) num_arrived_ = atomicInc(&args_.state->num_arrived, gridDim.x - 1);
  }

  /// x[i][r]: vector i of rank r, which is own[i] for this rank, at offsets[i]; those with kNone
  /// are left out. When another rank does not come, x holds sentinels.
  static constexpr uint32_t kNone = ~uint32_t{0};
  template <typename V, int kVectors>
  __device__ void receive(const uint32_t (&offsets)[kVectors], const V (&own)[kVectors],
                          V (&x)[kVectors][kRanksMax]) {
    std::byte* const memory = args_.memory[args_.rank];
    int missing_rank;
    do {
      missing_rank = -1;
      // All loads are in flight before the first is compared.
      for_others(offsets,
                 [&](int i, int r) { ld_relaxed_sys(memory + slot(r) + offsets[i], x[i][r]); });
      for_others(offsets, [&](int i, int r) {
        if (x[i][r].has_sentinel()) missing_rank = r;
      });
    } while (missing_rank >= 0 && !gives_up(missing_rank));
    for_others(offsets,
               [&](int i, int r) { st_relaxed_sys(memory + slot(r) + offsets[i], V::sentinel()); });
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int r = 0; r < kRanksMax; ++r) {
        x[i][r] = V::chosen(r == args_.rank, own[i], x[i][r]);
      }
    }
  }

  /// By all threads, in the end: what finish_send() has begun and did not wait for.
  __device__ void finish() const {
    if (threadIdx.x == 0 && num_arrived_ == gridDim.x - 1) args_.state->buffer = 1 - buffer_;
  }

 private:
  static constexpr uint32_t kPollsOfClock = 256;

  __device__ bool is_other(int r) const { return r < args_.num_ranks && r != args_.rank; }
  __device__ size_t slot(int r) const {
    return (buffer_ * static_cast<size_t>(args_.num_ranks) + static_cast<size_t>(r)) *
           args_.slot_bytes;
  }

  template <int kVectors, typename Body>
  __device__ void for_others(const uint32_t (&offsets)[kVectors], const Body& body) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int r = 0; r < kRanksMax; ++r) {
        if (offsets[i] != kNone && is_other(r)) body(i, r);
      }
    }
  }

  /// Whether waiting ends, since the exchange has failed or fails now.
  __device__ bool gives_up(int missing_rank) {
    if (has_failed_) return true;
    if (++num_polls_ % kPollsOfClock != 0) return false;
    const uint64_t now = ptx::globaltimer();
    if (begin_ns_ == 0) begin_ns_ = now;
    Words<1> is_cancelled;
    ld_relaxed_sys(&args_.signals->is_cancelled, is_cancelled);
    const bool is_late = now - begin_ns_ >= args_.timeout_ns;
    has_failed_ = is_late || is_cancelled.word[0] != 0;
    if (!has_failed_) return false;
    st_relaxed_sys(&args_.state->has_failed, Words<1>{1});
    if (is_late) {
      const Words<1> missing = {static_cast<uint32_t>(missing_rank) + 1};
      st_relaxed_sys(&args_.signals->missing_rank, missing);
    }
    return true;
  }

  const ExchangeArgs& args_;
  uint32_t buffer_;
  bool has_failed_;
  uint32_t num_arrived_ = 0, num_polls_ = 0;
  uint64_t begin_ns_ = 0;
};

/// The sum in f32 in ascending order of ranks, rounded once to T.
template <typename T, int kWords, int kRanksMax>
__device__ Words<kWords> sum_of_ranks(const Words<kWords> (&x)[kRanksMax], int num_ranks) {
  float2 sums[kWords];
#pragma unroll
  for (int r = 0; r < kRanksMax; ++r) {
    if (r >= num_ranks) continue;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const float2 pair = pair_to_f32<T>(x[r].word[i]);
      sums[i] = r == 0 ? pair : float2{sums[i].x + pair.x, sums[i].y + pair.y};
    }
  }
  Words<kWords> rounded;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    rounded.word[i] = pair_from_f32<T>(sums[i].x, sums[i].y);
  }
  return rounded;
}

}  // namespace halley::cuda
