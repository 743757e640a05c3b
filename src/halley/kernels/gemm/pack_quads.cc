#include "halley/kernels/gemm/pack_quads.h"

#include <array>
#include <cstring>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/float8.h"

namespace halley {
namespace {

constexpr int64_t kUnitCodes = kQuadUnitInputs * kPanelRows;

void pack_u4(const uint8_t* quads, uint8_t* out) {
  for (int64_t pair = 0; pair < 4; ++pair) {
    const uint8_t* low = quads + 2 * pair * kQuadCodes;
    for (int64_t i = 0; i < kQuadCodes; ++i) {
      out[pair * kQuadCodes + i] = static_cast<uint8_t>(low[i] | (low[kQuadCodes + i] << 4));
    }
  }
}

/// The bits 0 and 1 of each code.
void pack_low_bits(const uint8_t* quads, uint8_t* out) {
  for (int64_t half = 0; half < 2; ++half) {
    const uint8_t* first = quads + 4 * half * kQuadCodes;
    for (int64_t i = 0; i < kQuadCodes; ++i) {
      unsigned byte = 0;
      for (int64_t quad = 0; quad < 4; ++quad) {
        byte |= (first[quad * kQuadCodes + i] & 3u) << (2 * quad);
      }
      out[half * kQuadCodes + i] = static_cast<uint8_t>(byte);
    }
  }
}

/// Bit 2 of each code.
void pack_high_bit(const uint8_t* quads, uint8_t* out) {
  for (int64_t i = 0; i < kQuadCodes; ++i) {
    unsigned byte = 0;
    for (int64_t quad = 0; quad < 8; ++quad) {
      byte |= ((quads[quad * kQuadCodes + i] >> 2) & 1u) << quad;
    }
    out[i] = static_cast<uint8_t>(byte);
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
      return 4;
    case PackedLayout::kU8Quad:
    case PackedLayout::kF8E4M3Quad:
      return 8;
    default:
      HALLEY_CHECK(false, layout);
  }
  return 0;
}

void pack_quads(PackedLayout layout, const uint8_t* quads, int64_t num_units, std::byte* out) {
  const int64_t unit_bytes = kUnitCodes / 8 * code_bits(layout);
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (int64_t unit = 0; unit < num_units; ++unit, quads += kUnitCodes, to += unit_bytes) {
    switch (layout) {
      case PackedLayout::kU4Quad:
        pack_u4(quads, to);
        break;
      case PackedLayout::kU2Quad:
        pack_low_bits(quads, to);
        break;
      case PackedLayout::kU3Quad:
        pack_low_bits(quads, to);
        pack_high_bit(quads, to + 2 * kQuadCodes);
        break;
      default:
        std::memcpy(to, quads, kUnitCodes);
    }
  }
}

void unpack_unit(PackedLayout layout, const std::byte* unit, uint8_t* quads) {
  const auto* from = reinterpret_cast<const uint8_t*>(unit);
  const int bits = code_bits(layout);
  for (int64_t quad = 0; quad < 8; ++quad) {
    for (int64_t i = 0; i < kQuadCodes; ++i) {
      unsigned code = 0;
      if (bits == 8) {
        code = from[quad * kQuadCodes + i];
      } else if (bits == 4) {
        code = (from[quad / 2 * kQuadCodes + i] >> (quad % 2 * 4)) & 15u;
      } else {
        code = (from[quad / 4 * kQuadCodes + i] >> (quad % 4 * 2)) & 3u;
        if (bits == 3) code |= ((from[2 * kQuadCodes + i] >> quad) & 1u) << 2;
      }
      quads[quad * kQuadCodes + i] = static_cast<uint8_t>(code);
    }
  }
}

void unpack_quantized_row(const PackedWeight& weight, int64_t n, float* out) {
  const QuantParams& quant = weight.quant;
  const int64_t panel = n / kPanelRows;
  const int64_t column = n % kPanelRows;
  const int64_t unit_bytes = kUnitCodes / 8 * code_bits(weight.layout);
  const std::byte* units =
      weight.data.data() +
      static_cast<size_t>(panel) * packed_bytes(weight.layout, kPanelRows, weight.K);
  std::array<uint8_t, kUnitCodes> quads;
  for (int64_t k = 0; k < weight.K; ++k) {
    const int64_t in_unit = k % kQuadUnitInputs;
    if (in_unit == 0) {
      unpack_unit(weight.layout, units + k / kQuadUnitInputs * unit_bytes, quads.data());
    }
    const uint8_t code =
        quads[static_cast<size_t>(in_unit / 4 * kQuadCodes + column * 4 + in_unit % 4)];
    const double value = weight.layout == PackedLayout::kF8E4M3Quad ? e4m3_to_f32(code) : code;
    const float* group = weight.group(panel, k / quant.group_size);
    // Exact in f64 but for the one rounding at the end: the factors have 24 and 8 bits.
    const double scale = group[column];
    const double zero = group[kPanelRows + column];
    const double w =
        quant.zero_kind == ZeroKind::kPoint ? scale * (value - zero) : scale * value - zero;
    const int64_t to = quant.input_order.empty() ? k : quant.input_order[static_cast<size_t>(k)];
    out[to] = static_cast<float>(w);
  }
}

void allocate_quantized(PackedWeight* weight) {
  weight->data = HostBuffer(packed_bytes(weight->layout, weight->N, weight->K));
  weight->quant.groups = HostBuffer(group_bytes(weight->N, weight->K, weight->quant.group_size));
}

}  // namespace halley
