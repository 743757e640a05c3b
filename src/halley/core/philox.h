// Philox4x32-10, a counter-based random number generator: the n-th number of a stream needs no
// state, so that a request's draws depend on nothing but its seed and the token's index.
// constexpr, so that device code may call it too.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace halley {

/// One block of four 32-bit numbers.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

/// Half 0 or 1 of the block number `index` of the stream `seed`: 64 random bits each.
constexpr uint64_t random_half(uint64_t seed, uint64_t index, size_t half) {
  const auto block =
      philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{block[2 * half + 1]} << 32 | block[2 * half];
}

/// The 64 random bits number `index` of the stream `seed`.
constexpr uint64_t random_bits(uint64_t seed, uint64_t index) {
  return random_half(seed, index, 0);
}

/// Uniform in [0, 1), a multiple of 2^-53.
constexpr double uniform_of(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
constexpr double random_uniform(uint64_t seed, uint64_t index) {
  return uniform_of(random_bits(seed, index));
}

}  // namespace halley
