#include "halley/kernels/base/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/base/read_bandwidth.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace halley::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The exclusive or of all bytes, lane by lane: cheaper than any memory, yet every byte counts.
uint64_t fold(const uint64_t* words, size_t num_words) {
  const hn::ScalableTag<uint64_t> u64;
  const size_t lanes = hn::Lanes(u64);
  auto fold0 = hn::Zero(u64), fold1 = hn::Zero(u64), fold2 = hn::Zero(u64), fold3 = hn::Zero(u64);
  size_t i = 0;
  for (; i + 4 * lanes <= num_words; i += 4 * lanes) {
    fold0 = hn::Xor(fold0, hn::LoadU(u64, words + i));
    fold1 = hn::Xor(fold1, hn::LoadU(u64, words + i + lanes));
    fold2 = hn::Xor(fold2, hn::LoadU(u64, words + i + 2 * lanes));
    fold3 = hn::Xor(fold3, hn::LoadU(u64, words + i + 3 * lanes));
  }
  uint64_t result =
      hn::GetLane(hn::SumOfLanes(u64, hn::Xor(hn::Xor(fold0, fold1), hn::Xor(fold2, fold3))));
  for (; i < num_words; ++i) result ^= words[i];
  return result;
}

}  // namespace halley::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {

HWY_EXPORT(fold);

namespace {

// The size of one panel of a weight with 2048 inputs in 16 bits.
constexpr size_t kPieceBytes = 128 * 1024;

// The memory as whole words, without what stands before the first and behind the last.
std::span<const uint64_t> words_of(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const size_t num_skipped = round_up(begin, sizeof(uint64_t)) - begin;
  if (memory.size() < num_skipped) return {};
  return {reinterpret_cast<const uint64_t*>(memory.data() + num_skipped),
          (memory.size() - num_skipped) / sizeof(uint64_t)};
}

void read_once(ExecContext& context, std::span<const uint64_t> words,
               std::atomic<uint64_t>& total) {
  constexpr size_t kPieceWords = kPieceBytes / sizeof(uint64_t);
  const auto num_pieces = static_cast<int64_t>(ceil_div(words.size(), kPieceWords));
  context.pool.run(num_pieces, [&](int64_t piece, int) {
    const size_t first = static_cast<size_t>(piece) * kPieceWords;
    const size_t count = std::min(kPieceWords, words.size() - first);
    total.fetch_xor(HWY_DYNAMIC_DISPATCH(fold)(words.data() + first, count),
                    std::memory_order_relaxed);
  });
}

}  // namespace

double measure_read_bandwidth(ExecContext& context,
                              std::span<const std::span<const std::byte>> memories,
                              int num_repeats) {
  HALLEY_CHECK(num_repeats >= 1, num_repeats);
  size_t num_words = 0;
  for (const auto& memory : memories) num_words += words_of(memory).size();
  if (num_words == 0) return 0;
  std::atomic<uint64_t> total{0};  // keeps the loads from being removed
  double seconds_min = 0;
  for (int repeat = 0; repeat < num_repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (const auto& memory : memories) read_once(context, words_of(memory), total);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (repeat == 0 || elapsed.count() < seconds_min) seconds_min = elapsed.count();
  }
  return static_cast<double>(num_words * sizeof(uint64_t)) / seconds_min;
}

}  // namespace halley
#endif
