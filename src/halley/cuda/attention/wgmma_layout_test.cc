#include "halley/cuda/attention/wgmma_layout.h"

#include <set>

#include <gtest/gtest.h>

#include "halley/cuda/attention/kv_page_map.h"

namespace halley::attention {
namespace {

// A model of the hardware's descriptor addressing after the canonical layouts of the PTX ISA, for
// 16-bit elements and the 128-byte swizzle: address bits 4 to 6 are XORed with bits 7 to 9.
struct Descriptor {
  uint32_t start, leading, stride;

  explicit Descriptor(uint64_t bits)
      : start(static_cast<uint32_t>(bits & 0x3FFF) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3FFF) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3FFF) << 4) {
    EXPECT_EQ(bits >> 62, 1U);           // 128-byte swizzle
    EXPECT_EQ(bits >> 49 & 0x1FFF, 0U);  // no base offset: operands begin at multiples of 1024
  }
  static uint32_t swizzled(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }
  // K-major: row of A or column of B, k-th of the 16 columns of a k-step.
  uint32_t row_element(int row, int k) const {
    const int at = row / 8 * static_cast<int>(stride) + row % 8 * 128 + 2 * k;
    return swizzled(start + static_cast<uint32_t>(at));
  }
  // MN-major (transpose bit set): k-th of the 16 rows of a k-step.
  uint32_t column_element(int k, int column) const {
    const int at = column / 64 * static_cast<int>(leading) + column % 64 * 2 +
                   k / 8 * static_cast<int>(stride) + k % 8 * 128;
    return swizzled(start + static_cast<uint32_t>(at));
  }
};

constexpr uint32_t kBegin = 37 * 1024;

TEST(WgmmaLayout, KMajorOperandsAreWhereTheDescriptorSays) {
  for (const int num_panels : {1, 2, 4}) {
    for (const int first_row : {0, 64}) {
      for (int step = 0; step < 4 * num_panels; ++step) {
        const int begin = panel_offset(num_panels, first_row, 0);
        const Descriptor descriptor(
            k_major_descriptor(kBegin + static_cast<uint32_t>(begin), num_panels) +
            static_cast<uint64_t>(k_major_step_offset(step) / 16));
        for (int row = 0; row < 64; ++row) {
          for (int k = 0; k < 16; ++k) {
            const int offset = panel_offset(num_panels, first_row + row, 2 * (16 * step + k));
            ASSERT_EQ(descriptor.row_element(row, k), kBegin + static_cast<uint32_t>(offset))
                << num_panels << " " << step << " " << row << " " << k;
          }
        }
      }
    }
  }
}

TEST(WgmmaLayout, MnMajorOperandsAreWhereTheDescriptorSays) {
  for (const int num_panels : {1, 2, 4}) {
    for (int step = 0; step < 8; ++step) {
      const Descriptor descriptor(
          mn_major_descriptor(kBegin, num_panels) +
          static_cast<uint64_t>(mn_major_step_offset(num_panels, step) / 16));
      for (int k = 0; k < 16; ++k) {
        for (int column = 0; column < 64 * num_panels; ++column) {
          const int offset = panel_offset(num_panels, 16 * step + k, 2 * column);
          ASSERT_EQ(descriptor.column_element(k, column), kBegin + static_cast<uint32_t>(offset))
              << num_panels << " " << step << " " << k << " " << column;
        }
      }
    }
  }
}

TEST(WgmmaLayout, PanelsHoldEveryChunkOnceAndEightRowsMeetAllBanks) {
  std::set<int> seen;
  for (int row = 0; row < 128; ++row) {
    for (int byte = 0; byte < 256; byte += 16) seen.insert(panel_offset(2, row, byte));
  }
  EXPECT_EQ(seen.size(), 128U * 16U);
  EXPECT_EQ(*seen.rbegin(), 128 * 256 - 16);
  for (int row = 0; row < 128; row += 8) {
    std::set<int> banks;
    for (int i = 0; i < 8; ++i) banks.insert(panel_offset(2, row + i, 160) % 128);
    EXPECT_EQ(banks.size(), 8U);
  }
}

TEST(KvPageMap, HasBoxesThatDividePagesAndTiles) {
  const auto tokens_of = [](int64_t page_tokens, int64_t head_dim = 128,
                            KvDType dtype = KvDType::kF16) {
    return box_tokens({dtype, 8, head_dim, page_tokens});
  };
  EXPECT_EQ(tokens_of(16), 16);
  EXPECT_EQ(tokens_of(8), 8);
  EXPECT_EQ(tokens_of(24), 8);
  EXPECT_EQ(tokens_of(48, 64, KvDType::kBf16), 16);
  EXPECT_EQ(tokens_of(128), 128);
  EXPECT_EQ(tokens_of(256), 128);
  EXPECT_EQ(tokens_of(4), 0);
  EXPECT_EQ(tokens_of(3), 0);
  EXPECT_EQ(tokens_of(16, 80), 0);
  EXPECT_EQ(tokens_of(16, 256), 0);
  EXPECT_EQ(tokens_of(16, 128, KvDType::kFp8E4M3), 0);
  EXPECT_EQ(value_groups({KvDType::kF16, 8, 128, 16}), 16);
}

}  // namespace
}  // namespace halley::attention
