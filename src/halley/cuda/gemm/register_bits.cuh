// The 32 bits of a register as another type of four bytes, and back.
#pragma once

#include <cstdint>
#include <cstring>

namespace halley::cuda {

template <typename T>
__device__ __forceinline__ T bits_as(uint32_t bits) {
  static_assert(sizeof(T) == sizeof(bits));
  T value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
__device__ __forceinline__ uint32_t word_of(T value) {
  static_assert(sizeof(T) == sizeof(uint32_t));
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace halley::cuda
