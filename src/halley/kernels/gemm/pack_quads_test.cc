#include "halley/kernels/gemm/pack_quads.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/float4.h"
#include "halley/core/float8.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"

namespace halley {
namespace {

constexpr size_t kUnitValues = 1024;

std::vector<uint8_t> random_values(PackedLayout layout, size_t num_units, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> values(num_units * kUnitValues);
  const uint32_t mask = (1u << code_bits(layout)) - 1;
  for (uint8_t& code : values) code = static_cast<uint8_t>(random() & mask);
  return values;
}

// The value of feature n and input k of a unit, read as the words in packed_weight.h say.
int value_at(PackedLayout layout, const uint8_t* unit, int n, int k) {
  const int quad = k / 4;
  const int byte = n * 4 + k % 4;
  const auto bits_of_byte = [&](int index, int shift, int mask) {
    return (unit[index] >> shift) & mask;
  };
  switch (layout) {
    case PackedLayout::kU4Quad:
    case PackedLayout::kE2m1Quad:
      return bits_of_byte(quad / 2 * 128 + byte, quad % 2 == 0 ? 0 : 4, 15);
    case PackedLayout::kU2Quad:
      return bits_of_byte(quad / 4 * 128 + byte, quad % 4 * 2, 3);
    case PackedLayout::kU3Quad:
      return bits_of_byte(quad / 4 * 128 + byte, quad % 4 * 2, 3) +
             4 * bits_of_byte(256 + byte, quad, 1);
    default:
      return unit[quad * 128 + byte];
  }
}

TEST(PackQuads, PutsEveryValueAtItsIndex) {
  constexpr size_t kNumUnits = 3;
  for (const PackedLayout layout : kQuadLayouts) {
    const auto unit_bytes = static_cast<size_t>(128 * code_bits(layout));
    const std::vector<uint8_t> quads = random_values(layout, kNumUnits, 1);
    std::vector<uint8_t> packed(kNumUnits * unit_bytes + 1, 0xA5);
    pack_quads(layout, quads.data(), kNumUnits, reinterpret_cast<std::byte*>(packed.data()));
    for (size_t unit = 0; unit < kNumUnits; ++unit) {
      for (int n = 0; n < 32; ++n) {
        for (int k = 0; k < 32; ++k) {
          const auto from = static_cast<size_t>(k / 4 * 128 + n * 4 + k % 4);
          ASSERT_EQ(value_at(layout, packed.data() + unit * unit_bytes, n, k),
                    quads[unit * kUnitValues + from])
              << layout << " n=" << n << " k=" << k;
        }
      }
    }
    EXPECT_EQ(packed.back(), 0xA5) << layout;
  }
}

TEST(PackQuads, UnpacksWhatItPacked) {
  for (const PackedLayout layout : kQuadLayouts) {
    const std::vector<uint8_t> quads = random_values(layout, 1, 2);
    std::vector<std::byte> packed(static_cast<size_t>(128 * code_bits(layout)));
    pack_quads(layout, quads.data(), 1, packed.data());
    std::vector<uint8_t> again(kUnitValues, 0xFF);
    unpack_unit(layout, packed.data(), again.data());
    EXPECT_EQ(again, quads) << layout;
  }
}

// Two panels, the second with one feature, whose quantized values, scales and zeros are functions
// of n and k.
struct Pattern {
  PackedLayout layout;
  int64_t N, K, group_size;

  int code(int64_t n, int64_t k) const {
    const int64_t code = (n * 5 + k * 3 + n * k) % (int64_t{1} << code_bits(layout));
    return static_cast<int>(code);
  }
  float scale(int64_t n, int64_t group) const {
    return 0.1f * static_cast<float>(1 + n + 7 * group);
  }
  float zero(int64_t n, int64_t group) const {
    return 0.3f * static_cast<float>((n + 2 * group) % 9);
  }

  PackedWeight weight() const {
    PackedWeight weight;
    weight.layout = layout;
    weight.N = N;
    weight.K = K;
    weight.quant.group_size = group_size;
    allocate_quantized(&weight);
    EXPECT_EQ(weight.data.num_bytes(), packed_bytes(layout, N, K));
    EXPECT_EQ(weight.quant.groups.num_bytes(), group_bytes(N, K, group_size));
    const int64_t num_units = (K + 31) / 32;
    for (int64_t panel = 0; panel * 32 < N; ++panel) {
      std::vector<uint8_t> quads(static_cast<size_t>(num_units) * kUnitValues);
      for (int64_t n = panel * 32; n < std::min(N, panel * 32 + 32); ++n) {
        for (int64_t k = 0; k < K; ++k) {
          quads[static_cast<size_t>(k / 4 * 128 + n % 32 * 4 + k % 4)] =
              static_cast<uint8_t>(code(n, k));
        }
      }
      const auto panel_bytes = static_cast<int64_t>(packed_bytes(layout, 32, K));
      pack_quads(layout, quads.data(), num_units, weight.data.data() + panel * panel_bytes);
      for (int64_t group = 0; group * group_size < K; ++group) {
        for (int64_t i = 0; i < 32; ++i) {
          const int64_t n = panel * 32 + i;
          const int64_t at = (panel * weight.num_groups() + group) * 64 + i;
          auto groups = weight.quant.groups.as<float>();
          groups[static_cast<size_t>(at)] = n < N ? scale(n, group) : 0.0f;
          groups[static_cast<size_t>(at + 32)] = n < N ? zero(n, group) : 0.0f;
        }
      }
    }
    return weight;
  }
};

TEST(UnpackQuantizedRow, IsTheDefinitionRoundedOnce) {
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ZeroKind zero_kind : {ZeroKind::kPoint, ZeroKind::kOffset}) {
      for (const int64_t group_size : {1, 7, 32, 77}) {
        const Pattern pattern{layout, 33, 77, group_size};
        PackedWeight weight = pattern.weight();
        weight.quant.zero_kind = zero_kind;
        for (int32_t k = 0; k < 77; ++k) weight.quant.input_perm.push_back((k * 10 + 3) % 77);
        std::vector<float> row(77, std::numeric_limits<float>::quiet_NaN());
        for (int64_t n = 0; n < 33; ++n) {
          unpack_row(weight, n, row.data());
          for (int64_t k = 0; k < 77; ++k) {
            const int code = pattern.code(n, k);
            const auto byte = static_cast<uint8_t>(code);
            const double value = layout == PackedLayout::kF8E4M3Quad ? double{e4m3_to_f32(byte)}
                                 : layout == PackedLayout::kE2m1Quad ? double{e2m1_to_f32(byte)}
                                                                     : code;
            const double scale = pattern.scale(n, k / group_size);
            const double zero = pattern.zero(n, k / group_size);
            const auto expected = static_cast<float>(
                zero_kind == ZeroKind::kPoint ? scale * (value - zero) : scale * value - zero);
            const float actual = row[static_cast<size_t>((k * 10 + 3) % 77)];
            ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)))
                << layout << " n=" << n << " k=" << k << ": " << actual << ", not " << expected;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace halley
