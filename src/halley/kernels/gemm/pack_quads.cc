#include "halley/kernels/gemm/pack_quads.h"

#include <array>
#include <cstring>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"

namespace halley {
namespace {

constexpr int64_t kUnitValues = kQuadUnitInputs * kPanelRows;

// Loops over the bytes of a row, without branches and without overlap, which the compiler turns
// into vectors.

void pack_u4(const uint8_t* __restrict quads, uint8_t* __restrict out) {
  for (int64_t pair = 0; pair < 4; ++pair, quads += 2 * kQuadValues, out += kQuadValues) {
    for (int64_t i = 0; i < kQuadValues; ++i) {
      out[i] = static_cast<uint8_t>(quads[i] | (quads[kQuadValues + i] << 4));
    }
  }
}

void unpack_u4(const uint8_t* __restrict packed, uint8_t* __restrict quads) {
  for (int64_t pair = 0; pair < 4; ++pair, quads += 2 * kQuadValues, packed += kQuadValues) {
    for (int64_t i = 0; i < kQuadValues; ++i) {
      quads[i] = packed[i] & 15u;
      quads[kQuadValues + i] = packed[i] >> 4;
    }
  }
}

/// The bits 0 and 1 of each value.
void pack_low_bits(const uint8_t* __restrict quads, uint8_t* __restrict out) {
  for (int64_t half = 0; half < 2; ++half, quads += 4 * kQuadValues, out += kQuadValues) {
    for (int64_t i = 0; i < kQuadValues; ++i) {
      out[i] = static_cast<uint8_t>((quads[i] & 3) | (quads[kQuadValues + i] & 3) << 2 |
                                    (quads[2 * kQuadValues + i] & 3) << 4 |
                                    (quads[3 * kQuadValues + i] & 3) << 6);
    }
  }
}

void unpack_low_bits(const uint8_t* __restrict packed, uint8_t* __restrict quads) {
  for (int64_t half = 0; half < 2; ++half, quads += 4 * kQuadValues, packed += kQuadValues) {
    for (int64_t i = 0; i < kQuadValues; ++i) {
      quads[i] = packed[i] & 3u;
      quads[kQuadValues + i] = (packed[i] >> 2) & 3u;
      quads[2 * kQuadValues + i] = (packed[i] >> 4) & 3u;
      quads[3 * kQuadValues + i] = packed[i] >> 6;
    }
  }
}

/// Bit 2 of each value.
void pack_high_bit(const uint8_t* __restrict quads, uint8_t* __restrict out) {
  for (int64_t i = 0; i < kQuadValues; ++i) {
    const auto bit = [&](int quad) { return (quads[quad * kQuadValues + i] >> 2 & 1) << quad; };
    out[i] =
        static_cast<uint8_t>(bit(0) | bit(1) | bit(2) | bit(3) | bit(4) | bit(5) | bit(6) | bit(7));
  }
}

void add_high_bit(const uint8_t* __restrict packed, uint8_t* __restrict quads) {
  for (int quad = 0; quad < 8; ++quad, quads += kQuadValues) {
    for (int64_t i = 0; i < kQuadValues; ++i) {
      quads[i] = static_cast<uint8_t>(quads[i] | ((packed[i] >> quad & 1) << 2));
    }
  }
}

}  // namespace

int code_bits(PackedLayout layout) {
  switch (layout) {
    case PackedLayout::kU2Quad:
      return 2;
    case PackedLayout::kU3Quad:
      return 3;
    case PackedLayout::kU4Quad:
    case PackedLayout::kE2m1Quad:
      return 4;
    case PackedLayout::kU8Quad:
    case PackedLayout::kF8E4M3Quad:
    case PackedLayout::kNestedF16Quad:
      return 8;
    default:
      HALLEY_CHECK(false, layout);
  }
  return 0;
}

void pack_quads(PackedLayout layout, const uint8_t* quads, int64_t num_units, std::byte* out) {
  const int64_t unit_bytes = kUnitValues / 8 * code_bits(layout);
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (int64_t unit = 0; unit < num_units; ++unit, quads += kUnitValues, to += unit_bytes) {
    switch (layout) {
      case PackedLayout::kU4Quad:
      case PackedLayout::kE2m1Quad:
        pack_u4(quads, to);
        break;
      case PackedLayout::kU2Quad:
        pack_low_bits(quads, to);
        break;
      case PackedLayout::kU3Quad:
        pack_low_bits(quads, to);
        pack_high_bit(quads, to + 2 * kQuadValues);
        break;
      default:
        std::memcpy(to, quads, kUnitValues);
    }
  }
}

void unpack_unit(PackedLayout layout, const std::byte* unit, uint8_t* quads) {
  const auto* from = reinterpret_cast<const uint8_t*>(unit);
  switch (layout) {
    case PackedLayout::kU4Quad:
    case PackedLayout::kE2m1Quad:
      return unpack_u4(from, quads);
    case PackedLayout::kU2Quad:
      return unpack_low_bits(from, quads);
    case PackedLayout::kU3Quad:
      unpack_low_bits(from, quads);
      return add_high_bit(from + 2 * kQuadValues, quads);
    default:
      std::memcpy(quads, from, kUnitValues);
  }
}

void unpack_quantized_row(const PackedWeight& weight, int64_t n, float* out) {
  const QuantParams& quant = weight.quant;
  const int64_t panel = n / kPanelRows;
  const int64_t column = n % kPanelRows;
  const int64_t unit_bytes = kUnitValues / 8 * code_bits(weight.layout);
  const std::byte* units =
      weight.data.data() +
      static_cast<size_t>(panel) * packed_bytes(weight.layout, kPanelRows, weight.K);
  std::array<uint8_t, kUnitValues> quads;
  for (int64_t k = 0; k < weight.K; ++k) {
    const int64_t in_unit = k % kQuadUnitInputs;
    if (in_unit == 0) {
      unpack_unit(weight.layout, units + k / kQuadUnitInputs * unit_bytes, quads.data());
    }
    const uint8_t code =
        quads[static_cast<size_t>(in_unit / 4 * kQuadValues + column * 4 + in_unit % 4)];
    const double value = value_of(weight.layout, code);
    const float* group = weight.group(panel, k / quant.group_size);
    // Exact in f64 but for the one rounding at the end: the factors have 24 and 8 bits.
    const double scale = group[column];
    const double zero = group[kPanelRows + column];
    const double w =
        quant.zero_kind == ZeroKind::kPoint ? scale * (value - zero) : scale * value - zero;
    const int64_t to = quant.input_perm.empty() ? k : quant.input_perm[static_cast<size_t>(k)];
    out[to] = static_cast<float>(w);
  }
}

void unpack_nested_row(const PackedWeight& weight, int64_t n, Precision precision, float* out) {
  const size_t panel_bytes = packed_bytes(weight.layout, kPanelRows, weight.K);
  const auto* upper = reinterpret_cast<const uint8_t*>(weight.data.data()) +
                      static_cast<size_t>(n / kPanelRows) * panel_bytes;
  const uint8_t* lower = upper + panel_bytes / 2;
  for (int64_t k = 0; k < weight.K; ++k) {
    const int64_t place = k / 4 * kQuadValues + n % kPanelRows * 4 + k % 4;
    out[k] = precision == Precision::kLow ? e4m3_to_f32(upper[place]) * kNestedUpperScale
                                          : f16_to_f32(join_f16({upper[place], lower[place]}));
  }
}

void allocate_quantized(PackedWeight* weight) {
  weight->data = HostBuffer(packed_bytes(weight->layout, weight->N, weight->K));
  if (!is_quantized(weight->layout)) return;
  weight->quant.groups = HostBuffer(group_bytes(weight->N, weight->K, weight->quant.group_size));
}

}  // namespace halley
