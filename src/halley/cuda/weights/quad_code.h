// Where a code of a quad layout lies (core/packed_weight.h), for the host and the device alike.
#pragma once

#include <cstdint>

#include "halley/core/packed_weight.h"

namespace halley::cuda {

/// Bytes of one unit of 32 features and 32 inputs; of kNestedF16Quad of one of its planes.
constexpr int64_t quad_unit_bytes(PackedLayout layout) {
  switch (layout) {
    case PackedLayout::kU4Quad:
    case PackedLayout::kE2m1Quad:
      return 512;
    case PackedLayout::kU3Quad:
      return 384;
    case PackedLayout::kU2Quad:
      return 256;
    default:
      return 1024;
  }
}

/// The code of feature `column` and input 4 * quad + i of a unit; quad from 0 to 7, i from 0 to 3.
constexpr uint32_t quad_code(PackedLayout layout, const uint8_t* unit, int column, int quad,
                             int i) {
  const int place = column * 4 + i;
  switch (layout) {
    case PackedLayout::kU4Quad:
    case PackedLayout::kE2m1Quad:
      return (uint32_t{unit[quad / 2 * 128 + place]} >> (quad % 2 * 4)) & 15u;
    case PackedLayout::kU2Quad:
      return (uint32_t{unit[quad / 4 * 128 + place]} >> (quad % 4 * 2)) & 3u;
    case PackedLayout::kU3Quad: {
      const uint32_t low = (uint32_t{unit[quad / 4 * 128 + place]} >> (quad % 4 * 2)) & 3u;
      const uint32_t high = (uint32_t{unit[2 * 128 + place]} >> quad) & 1u;
      return low | high << 2;
    }
    default:
      return unit[quad * 128 + place];
  }
}

}  // namespace halley::cuda
