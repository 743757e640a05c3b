#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/kernels/base/guarded_matrix.h"
#include "halley/kernels/base/simd_targets.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/kernels/kv/kv_rows.h"

namespace halley {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBf16};

TEST(KvPageLayout, CountsBytesOfHeadsAndPages) {
  const KvPageLayout layout{DType::kF16, 4, 64, 16};
  EXPECT_EQ(layout.head_bytes(), 16u * 64u * 2u);
  EXPECT_EQ(layout.page_bytes(), 2u * 4u * 16u * 64u * 2u);
  EXPECT_EQ(layout.key_offset(3, 2), (3u * 16u + 2u) * 64u * 2u);
  EXPECT_EQ(layout.value_offset(0, 0), 4u * layout.head_bytes());
}

// What the cache must hold: the bytes of one element.
std::vector<std::byte> stored(DType dtype, float value) {
  std::vector<std::byte> bytes(dtype == DType::kF32 ? 4 : 2);
  if (dtype == DType::kF32) {
    std::memcpy(bytes.data(), &value, 4);
  } else {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(bytes.data(), &bits, 2);
  }
  return bytes;
}

TEST(WriteKv, WritesTheSlotsOfTheNewTokensAndNothingElse) {
  ThreadPool pool(2);
  ExecContext context{pool};
  for_each_simd_target([&](const char* target) {
    for (const DType dtype : kTypes) {
      for (const int64_t page_tokens : {1, 3, 16}) {
        const KvPageLayout layout{dtype, 2, 19, page_tokens};
        // Two sequences whose pages are mixed: tokens 5..11 of one, 2 of the other.
        std::vector<int32_t> tables[2];
        for (int32_t i = 0; i < 12; ++i) {
          tables[0].push_back(2 * (11 - i) + 1);
          tables[1].push_back(2 * i);
        }
        const std::vector<BatchSequence> sequences = {{0, 7, 5, tables[0]}, {7, 1, 2, tables[1]}};
        std::vector<std::byte> pages(24 * layout.page_bytes(), std::byte{0xAB});
        std::vector<std::byte> expected = pages;
        GuardedMatrix k(8, 2 * 19), v(8, 2 * 19, 1);
        k.fill_normal(1, 100.0f);
        v.fill_normal(2, 1e-6f);
        for (const BatchSequence& sequence : sequences) {
          for (int64_t token = 0; token < sequence.num_new_tokens; ++token) {
            const int64_t position = sequence.num_past_tokens + token;
            const int32_t page = sequence.page_table[static_cast<size_t>(position / page_tokens)];
            for (int64_t i = 0; i < 2 * 19; ++i) {
              const size_t at = static_cast<size_t>(page) * layout.page_bytes();
              const int64_t slot = position % page_tokens, row = sequence.first_row + token;
              const auto key = stored(dtype, k.row(row)[i]), value = stored(dtype, v.row(row)[i]);
              const size_t element = static_cast<size_t>(i % 19) * key.size();
              std::memcpy(&expected[at + layout.key_offset(i / 19, slot) + element], key.data(),
                          key.size());
              std::memcpy(&expected[at + layout.value_offset(i / 19, slot) + element], value.data(),
                          value.size());
            }
          }
        }
        write_kv(context, {layout, pages.data(), 24}, sequences, k.matrix(), v.matrix());
        EXPECT_EQ(pages, expected) << target << " " << dtype << " P " << page_tokens;
      }
    }
  });
}

TEST(StoreKvRow, RoundsEveryKindOfValueAsTheScalarConversionDoes) {
  std::vector<float> values;
  for (uint32_t high = 0; high < 65536; high += 3) {
    for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  // Half way between two neighbours of f16, where only "to even" decides.
  for (uint32_t bits = 0x3F800000u; bits < 0x3F900000u; bits += 0x1000u) {
    values.push_back(std::bit_cast<float>(bits));
  }
  for_each_simd_target([&](const char* target) {
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      std::vector<uint16_t> out(values.size());
      store_kv_row(dtype, values.data(), values.size(), reinterpret_cast<std::byte*>(out.data()));
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t expected =
            dtype == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
        ASSERT_EQ(out[i], expected) << target << " " << dtype << " " << values[i];
      }
    }
  });
}

TEST(WriteKvDeathTest, RefusesAPageTableThatIsTooShort) {
  const KvPageLayout layout{DType::kF16, 1, 4, 2};
  std::vector<std::byte> pages(layout.page_bytes());
  const std::vector<int32_t> table = {0};
  const std::vector<BatchSequence> sequences = {{0, 1, 2, table}};
  EXPECT_DEATH(check_sequences({layout, pages.data(), 1}, sequences, 1), "page_table");
}

TEST(WriteKvDeathTest, RefusesAPageOutsideTheCache) {
  const KvPageLayout layout{DType::kF16, 1, 4, 2};
  std::vector<std::byte> pages(layout.page_bytes());
  const std::vector<int32_t> table = {1};
  const std::vector<BatchSequence> sequences = {{0, 1, 0, table}};
  EXPECT_DEATH(check_sequences({layout, pages.data(), 1}, sequences, 1), "num_pages");
}

}  // namespace
}  // namespace halley
