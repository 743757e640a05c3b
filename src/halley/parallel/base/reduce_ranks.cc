#include "halley/parallel/base/reduce_ranks.h"

#include <algorithm>
#include <cstring>

#include "halley/base/check.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

constexpr size_t kBlockElements = 256;  // 1 KB of the stack, which stays in the first cache

void load_block(DType dtype, const std::byte* from, std::span<float> to) {
  if (dtype == DType::kF32) {
    std::memcpy(to.data(), from, to.size_bytes());
    return;
  }
  for (size_t i = 0; i < to.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    to[i] = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

void store_block(DType dtype, std::span<const float> from, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from.data(), from.size_bytes());
    return;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
    std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void add_block(Reduction reduction, std::span<const float> block, std::span<float> accumulator) {
  for (size_t i = 0; i < block.size(); ++i) {
    accumulator[i] = reduction == Reduction::kSum ? accumulator[i] + block[i]
                                                  : std::max(accumulator[i], block[i]);
  }
}

}  // namespace

void reduce_ranks(Reduction reduction, DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> results, size_t count) {
  HALLEY_CHECK(!sources.empty());
  const size_t element_bytes = static_cast<size_t>(bits_of(dtype)) / 8;
  float accumulator[kBlockElements], block[kBlockElements];
  for (size_t begin = 0; begin < count; begin += kBlockElements) {
    const size_t size = std::min(kBlockElements, count - begin);
    const size_t offset = begin * element_bytes;
    load_block(dtype, sources[0] + offset, {accumulator, size});
    for (const std::byte* source : sources.subspan(1)) {
      load_block(dtype, source + offset, {block, size});
      add_block(reduction, {block, size}, {accumulator, size});
    }
    for (std::byte* result : results) {
      store_block(dtype, {accumulator, size}, result + offset);
    }
  }
}

}  // namespace halley
