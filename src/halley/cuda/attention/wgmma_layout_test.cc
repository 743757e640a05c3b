#include "halley/cuda/attention/wgmma_layout.h"

#include <set>

#include <gtest/gtest.h>

#include "halley/cuda/attention/prefill_table.h"

namespace halley::attention {
namespace {

// What the hardware does with a descriptor, from the canonical layouts of the PTX ISA, for 16-bit
// elements and the 128-byte swizzle: address bits 4 to 6 are exchanged by bits 7 to 9.
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
  // Rows of A or columns of B, `k` of the 16 columns that are summed over.
  uint32_t row_element(int row, int k) const {
    const int at = row / 8 * static_cast<int>(stride) + row % 8 * 128 + 2 * k;
    return swizzled(start + static_cast<uint32_t>(at));
  }
  // With the transpose bit: `k` of the 16 rows that are summed over.
  uint32_t column_element(int k, int column) const {
    const int at = column / 64 * static_cast<int>(leading) + column % 64 * 2 +
                   k / 8 * static_cast<int>(stride) + k % 8 * 128;
    return swizzled(start + static_cast<uint32_t>(at));
  }
};

constexpr uint32_t kBegin = 37 * 1024;

TEST(WgmmaLayout, RowOperandsAreWhereTheDescriptorSays) {
  for (const int head_dim : {64, 128}) {
    for (const int first_row : {0, 64}) {
      for (int step = 0; step < head_dim / 16; ++step) {
        const uint64_t bits =
            row_operand(kBegin + static_cast<uint32_t>(first_row * kPanelRowBytes)) +
            static_cast<uint64_t>(row_operand_step(128, step) / 16);
        const Descriptor descriptor(bits);
        for (int row = 0; row < 64; ++row) {
          for (int k = 0; k < 16; ++k) {
            const int offset = panel_offset(128, first_row + row, 2 * (16 * step + k));
            ASSERT_EQ(descriptor.row_element(row, k), kBegin + static_cast<uint32_t>(offset))
                << head_dim << " " << step << " " << row << " " << k;
          }
        }
      }
    }
  }
}

TEST(WgmmaLayout, ColumnOperandsAreWhereTheDescriptorSays) {
  for (const int head_dim : {64, 128}) {
    for (int step = 0; step < 8; ++step) {
      const Descriptor descriptor(column_operand(kBegin, 128) +
                                  static_cast<uint64_t>(column_operand_step(step) / 16));
      for (int k = 0; k < 16; ++k) {
        for (int column = 0; column < head_dim; ++column) {
          const int offset = panel_offset(128, 16 * step + k, 2 * column);
          ASSERT_EQ(descriptor.column_element(k, column), kBegin + static_cast<uint32_t>(offset))
              << head_dim << " " << step << " " << k << " " << column;
        }
      }
    }
  }
}

TEST(WgmmaLayout, PanelsHoldEveryChunkOnceAndEightRowsMeetAllBanks) {
  std::set<int> seen;
  for (int row = 0; row < 128; ++row) {
    for (int byte = 0; byte < 256; byte += 16) seen.insert(panel_offset(128, row, byte));
  }
  EXPECT_EQ(seen.size(), 128U * 16U);
  EXPECT_EQ(*seen.rbegin(), 128 * 256 - 16);
  for (int row = 0; row < 128; row += 8) {
    std::set<int> banks;
    for (int i = 0; i < 8; ++i) banks.insert(panel_offset(128, row + i, 160) % 128);
    EXPECT_EQ(banks.size(), 8U);
  }
}

TEST(PrefillTable, NamesTheKernelOfACache) {
  const AttentionProblem problem{32, 0.1f, 0, 0};
  KvPageLayout layout{KvDType::kF16, 8, 128, 16};
  EXPECT_EQ(choose_prefill_kernel(problem, layout), PrefillKernel::kWgmma);
  EXPECT_EQ(name_of(PrefillKernel::kWgmma), "wgmma, tiles of 128 x 128");
  layout.head_dim = 256;
  EXPECT_EQ(choose_prefill_kernel(problem, layout), PrefillKernel::kMma);
  EXPECT_EQ(why_not_prefill_kernel(PrefillKernel::kWgmma, problem, layout),
            "head_dim 256 is above 128");
  layout = {KvDType::kInt8, 8, 128, 16};
  EXPECT_EQ(choose_prefill_kernel(problem, layout), PrefillKernel::kMma);
  EXPECT_EQ(why_not_prefill_kernel(PrefillKernel::kWgmma, problem, layout),
            "a KV cache of int8; f16 and bf16 are served");
  layout.dtype = KvDType::kBf16;
  EXPECT_EQ(why_not_prefill_kernel(PrefillKernel::kWgmma, {32, -1.0f, 0, 0}, layout),
            "scale -1 is not above 0");
}

}  // namespace
}  // namespace halley::attention
