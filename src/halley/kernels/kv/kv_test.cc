#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/kernels/kv/kv_rows.h"
#include "halley/kernels/kv/testing/kv_reference.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

TEST(KvDType, HasANameThatIsReadBack) {
  for (const KvDType dtype : all_kv_dtypes()) {
    EXPECT_EQ(kv_dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_EQ(kv_dtype_from_name("fp8_e4m3"), KvDType::kFp8E4M3);
  for (const char* name : {"", "auto", "F16", "int3", "fp8_e5m2"}) {
    EXPECT_EQ(kv_dtype_from_name(name), std::nullopt) << name;
  }
}

TEST(KvDType, KeepsWeightsOfThreeTypesAsTheyAre) {
  EXPECT_EQ(kv_dtype_of(DType::kF32), KvDType::kF32);
  EXPECT_EQ(kv_dtype_of(DType::kF16), KvDType::kF16);
  EXPECT_EQ(kv_dtype_of(DType::kBf16), KvDType::kBf16);
}

TEST(KvPageLayout, CountsBytesOfRowsAndPages) {
  const KvPageLayout layout{KvDType::kF16, 4, 64, 16};
  EXPECT_EQ(layout.row_bytes(), 64u * 2u);
  EXPECT_EQ(layout.scale_bytes(), 0u);
  EXPECT_EQ(layout.page_bytes(), 2u * 4u * 16u * 64u * 2u);
  EXPECT_EQ(layout.token_bytes(), 2u * 4u * 64u * 2u);
  EXPECT_EQ(layout.key_offset(3, 2), (3u * 16u + 2u) * 64u * 2u);
  EXPECT_EQ(layout.value_offset(0, 0), 4u * 16u * 64u * 2u);
}

TEST(KvPageLayout, PutsTheScalesBehindTheRows) {
  const KvPageLayout layout{KvDType::kInt4, 4, 64, 16};
  EXPECT_EQ(layout.row_bytes(), 32u);
  EXPECT_EQ(layout.page_bytes(), 2u * 4u * 16u * (32u + 4u));
  EXPECT_EQ(layout.token_bytes(), 2u * 4u * (32u + 4u));
  EXPECT_EQ(layout.key_scale_offset(0, 0), 2u * 4u * 16u * 32u);
  EXPECT_EQ(layout.key_scale_offset(3, 2), 2u * 4u * 16u * 32u + (3u * 16u + 2u) * 4u);
  EXPECT_EQ(layout.value_scale_offset(1, 5), 2u * 4u * 16u * 32u + (5u * 16u + 5u) * 4u);
  EXPECT_EQ((KvPageLayout{KvDType::kInt8, 4, 64, 16}.token_bytes()), 2u * 4u * (64u + 4u));
  EXPECT_EQ((KvPageLayout{KvDType::kFp8E4M3, 4, 64, 16}.token_bytes()), 2u * 4u * (64u + 4u));
}

TEST(KvPageLayout, KeepsScalesAlignedForOddSizes) {
  for (const int64_t num_kv_heads : {1, 3}) {
    for (const int64_t head_dim : {1, 3, 17, 19}) {
      for (const int64_t page_tokens : {1, 3, 5}) {
        for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4, KvDType::kFp8E4M3}) {
          const KvPageLayout layout{dtype, num_kv_heads, head_dim, page_tokens};
          const size_t rows_end = layout.value_offset(num_kv_heads, 0);
          EXPECT_EQ(layout.key_scale_offset(0, 0) % 4, 0u);
          EXPECT_GE(layout.key_scale_offset(0, 0), rows_end);
          EXPECT_LT(layout.key_scale_offset(0, 0), rows_end + 4);
          EXPECT_EQ(layout.page_bytes(), layout.value_scale_offset(num_kv_heads, 0));
          EXPECT_EQ(layout.page_bytes() % 4, 0u);
        }
      }
    }
  }
}

// The cache's expected content, by the definition in kv_cache_view.h and in f64.
struct StoredRow {
  std::vector<std::byte> data;
  std::vector<std::byte> scale;
};

template <typename T>
void append(std::vector<std::byte>& to, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof(T));
}

// All finite f16 values, ascending, with the bits of each; of the two zeros, +0.
const std::map<double, uint16_t>& f16_numbers() {
  static const std::map<double, uint16_t> numbers = [] {
    std::map<double, uint16_t> all;
    for (int bits = 0; bits < 0x10000; ++bits) {
      const double magnitude = (bits & 0x7C00) == 0
                                   ? std::ldexp(bits & 0x3FF, -24)
                                   : std::ldexp(1024 + (bits & 0x3FF), (bits >> 10 & 31) - 25);
      if ((bits & 0x7C00) == 0x7C00 || bits == 0x8000) continue;
      all[bits >= 0x8000 ? -magnitude : magnitude] = static_cast<uint16_t>(bits);
    }
    return all;
  }();
  return numbers;
}

// One f32 operation is the f64 operation rounded to f32: f64 has more than twice the digits.
double to_f32(double value) { return static_cast<double>(static_cast<float>(value)); }

StoredRow stored_int(std::span<const float> values, int top_code) {
  double min = 65504, max = -65504;
  for (const float value : values) {
    const double bounded = std::clamp(static_cast<double>(value), -65504.0, 65504.0);
    min = std::min(min, bounded);
    max = std::max(max, bounded);
  }
  const auto zero = std::prev(f16_numbers().upper_bound(min));
  const double step = to_f32(to_f32(max - zero->first) / top_code);
  const auto scale = f16_numbers().lower_bound(std::max(step, std::ldexp(1, -24)));
  StoredRow row;
  append(row.scale, scale->second);
  append(row.scale, zero->second);
  for (size_t i = 0; i < values.size(); ++i) {
    const double steps =
        to_f32(to_f32(static_cast<double>(values[i]) - zero->first) / scale->first);
    const auto code = static_cast<uint8_t>(std::nearbyint(std::clamp<double>(steps, 0, top_code)));
    if (top_code == 255 || i % 2 == 0) {
      append(row.data, code);
    } else {
      row.data.back() |= static_cast<std::byte>(code << 4);
    }
  }
  return row;
}

// The nearest of all e4m3 values; of two, the even one.
uint8_t nearest_e4m3(double value) {
  const double magnitude = std::min(std::abs(value), 448.0);
  uint8_t best = 0;
  for (uint8_t code = 1; code < 0x7F; ++code) {
    const double error = std::abs(magnitude - e4m3_value(code));
    const double best_error = std::abs(magnitude - e4m3_value(best));
    if (error < best_error || (error == best_error && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

StoredRow stored_fp8(std::span<const float> values, float fixed_scale) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  const double own = std::max(to_f32(largest / 448), std::ldexp(1, -126));
  const double scale = fixed_scale > 0 ? double{fixed_scale} : own;
  StoredRow row;
  append(row.scale, static_cast<float>(scale));
  for (const float value : values) {
    append(row.data, nearest_e4m3(to_f32(static_cast<double>(value) / scale)));
  }
  return row;
}

StoredRow stored(KvDType dtype, std::span<const float> values, float fixed_scale) {
  if (dtype == KvDType::kInt8) return stored_int(values, 255);
  if (dtype == KvDType::kInt4) return stored_int(values, 15);
  if (dtype == KvDType::kFp8E4M3) return stored_fp8(values, fixed_scale);
  StoredRow row;
  for (const float value : values) {
    if (dtype == KvDType::kF32) {
      append(row.data, value);
    } else {
      append(row.data, dtype == KvDType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
    }
  }
  return row;
}

struct WriteCase {
  KvDType dtype;
  int64_t num_kv_heads, head_dim, page_tokens;
  KvScales scales = {};
};

// Two sequences whose pages are mixed, in a cache with guards around it: tokens 5..11 of one, 2 of
// the other. Every byte of pages and guards is compared.
void check_write(ExecContext& context, const WriteCase& tested, const char* target) {
  constexpr size_t kGuardBytes = 64;
  const KvPageLayout layout{tested.dtype, tested.num_kv_heads, tested.head_dim, tested.page_tokens};
  std::vector<int32_t> tables[2];
  for (int32_t i = 0; i < 12; ++i) {
    tables[0].push_back(2 * (11 - i) + 1);
    tables[1].push_back(2 * i);
  }
  const std::vector<BatchSequence> sequences = {{0, 7, 5, tables[0]}, {7, 1, 2, tables[1]}};
  std::vector<std::byte> pages(24 * layout.page_bytes() + 2 * kGuardBytes, std::byte{0xAB});
  std::vector<std::byte> expected = pages;
  const int64_t num_columns = layout.num_kv_heads * layout.head_dim;
  GuardedMatrix k(8, num_columns), v(8, num_columns, 1);
  k.fill_normal(1, 100.0f);
  v.fill_normal(2, 1e-6f);
  const auto expect_row = [&](const float* values, float scale, KvRow to) {
    const StoredRow row =
        stored(tested.dtype, {values, static_cast<size_t>(layout.head_dim)}, scale);
    std::memcpy(to.data, row.data.data(), row.data.size());
    if (!row.scale.empty()) std::memcpy(to.scale, row.scale.data(), row.scale.size());
  };
  for (const BatchSequence& sequence : sequences) {
    for (int64_t token = 0; token < sequence.num_new_tokens; ++token) {
      const int64_t position = sequence.num_past_tokens + token;
      const auto page = static_cast<size_t>(
          sequence.page_table[static_cast<size_t>(position / tested.page_tokens)]);
      std::byte* at = expected.data() + kGuardBytes + page * layout.page_bytes();
      const int64_t slot = position % tested.page_tokens, row = sequence.first_row + token;
      for (int64_t head = 0; head < layout.num_kv_heads; ++head) {
        expect_row(k.row(row) + head * layout.head_dim, tested.scales.k,
                   layout.key_row(at, head, slot));
        expect_row(v.row(row) + head * layout.head_dim, tested.scales.v,
                   layout.value_row(at, head, slot));
      }
    }
  }
  write_kv(context, {layout, pages.data() + kGuardBytes, 24, tested.scales}, sequences, k.matrix(),
           v.matrix());
  EXPECT_TRUE(pages == expected) << target << " " << tested.dtype << " J " << tested.num_kv_heads
                                 << " D " << tested.head_dim << " P " << tested.page_tokens;
}

TEST(WriteKv, WritesTheSlotsOfTheNewTokensAndNothingElse) {
  ThreadPool pool(2);
  ExecContext context{pool};
  for_each_simd_target([&](const char* target) {
    for (const KvDType dtype : all_kv_dtypes()) {
      for (const int64_t page_tokens : {1, 3, 16}) {
        for (const int64_t head_dim : {1, 19, 64, 80, 129}) {
          check_write(context, {dtype, 2, head_dim, page_tokens}, target);
          check_write(context, {dtype, 1, head_dim, page_tokens}, target);
        }
      }
    }
  });
}

TEST(WriteKv, TakesTheLayersScalesForFp8Alone) {
  ThreadPool pool(1);
  ExecContext context{pool};
  for_each_simd_target([&](const char* target) {
    check_write(context, {KvDType::kFp8E4M3, 2, 40, 16, {0.37f, 1e-9f}}, target);
    check_write(context, {KvDType::kFp8E4M3, 2, 40, 16, {1e-6f, 0}}, target);
    check_write(context, {KvDType::kInt8, 2, 40, 16, {0.37f, 1e-9f}}, target);
  });
}

// A row as it is stored, and as it is read back.
struct WrittenRow {
  WrittenRow(KvDType type, std::span<const float> values, float fixed_scale = 0)
      : dtype(type), data(4 * values.size()), scale(4) {
    store_kv_row(dtype, values.data(), values.size(), fixed_scale, {data.data(), scale.data()});
    for (size_t i = 0; i < values.size(); ++i) {
      read.push_back(kv_element(dtype, data.data(), scale.data(), static_cast<int64_t>(i)));
    }
  }
  uint16_t scale_bits() const { return half(0); }
  uint16_t zero_bits() const { return half(2); }
  uint16_t half(size_t offset) const {
    uint16_t bits;
    std::memcpy(&bits, scale.data() + offset, sizeof(bits));
    return bits;
  }

  KvDType dtype;
  std::vector<std::byte> data, scale;
  std::vector<double> read;
};

// Rows of many shapes: near 0, far from it, lopsided, with one huge number, subnormal, mixed.
std::vector<std::vector<float>> difficult_rows() {
  std::vector<std::vector<float>> rows;
  std::mt19937 random(23);
  std::normal_distribution<float> normal;
  for (const size_t size : {1u, 2u, 3u, 16u, 37u, 64u, 128u, 200u}) {
    for (const float spread : {1.0f, 1e-3f, 1e-7f, 1e-20f, 1e-40f, 30.0f, 2e4f}) {
      for (const float offset : {0.0f, 5.0f, -100.0f, 0.1f, -6e4f, 3e-6f}) {
        std::vector<float> row;
        for (size_t i = 0; i < size; ++i) row.push_back(offset + spread * normal(random));
        rows.push_back(row);
        rows.back()[size / 2] = 65504.0f;
        rows.push_back(row);
        rows.back()[size - 1] = -1e-8f;
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

TEST(StoreKvRow, IsExactlyTheDefinitionForDifficultRows) {
  for (const std::vector<float>& values : difficult_rows()) {
    for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4, KvDType::kFp8E4M3}) {
      const StoredRow expected = stored(dtype, values, 0);
      for_each_simd_target([&](const char* target) {
        WrittenRow row(dtype, values);
        row.data.resize(expected.data.size());
        ASSERT_EQ(row.scale, expected.scale) << target << " " << dtype << " " << values[0];
        ASSERT_EQ(row.data, expected.data) << target << " " << dtype << " " << values[0];
      });
    }
  }
}

TEST(StoreKvRow, IntegersAreWithinHalfAScaleOfEveryValue) {
  for (const std::vector<float>& values : difficult_rows()) {
    for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4}) {
      const WrittenRow row(dtype, values);
      const double scale = static_cast<double>(f16_to_f32(row.scale_bits()));
      ASSERT_GT(scale, 0);
      for (size_t i = 0; i < values.size(); ++i) {
        const double value = std::clamp(static_cast<double>(values[i]), -65504.0, 65504.0);
        // q * scale and the steps themselves are good to 2^-23.
        ASSERT_LE(std::abs(row.read[i] - value), scale * (0.5 + 255 * 0x1p-22))
            << dtype << " " << values[i] << " of " << values.size();
      }
    }
  }
}

TEST(StoreKvRow, Fp8IsWithinTheErrorOfThreeBitsOfMantissa) {
  for (const std::vector<float>& values : difficult_rows()) {
    const WrittenRow row(KvDType::kFp8E4M3, values);
    double largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(double{value}));
    const double scale = std::max(largest / 448, std::ldexp(1, -126));
    for (size_t i = 0; i < values.size(); ++i) {
      const double bound = std::max(std::abs(double{values[i]}) / 16, scale / 1024);
      ASSERT_LE(std::abs(row.read[i] - double{values[i]}), bound * (1 + 1e-6)) << values[i];
    }
  }
}

TEST(StoreKvRow, IntegersKeepRowsOfOneF16NumberExactly) {
  for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4}) {
    for (const float value : {0.0f, -0.0f, 1.0f, -3.140625f, 65504.0f, -65504.0f, 0x1p-24f}) {
      const WrittenRow row(dtype, std::vector<float>(21, value));
      for (const double read : row.read) {
        EXPECT_EQ(read, double{value}) << dtype;
        EXPECT_FALSE(value == 0 && std::signbit(read));
      }
    }
    for (const float first : {0.0f, -0.0f}) {
      for (const float second : {0.0f, -0.0f}) {
        const WrittenRow zeros(dtype, std::vector<float>{first, second, second, first});
        EXPECT_EQ(zeros.zero_bits(), 0) << dtype;  // never the bits of -0
        EXPECT_EQ(zeros.scale_bits(), 1) << dtype;
      }
    }
  }
}

TEST(StoreKvRow, Fp8KeepsZerosAndPowersOfTwo) {
  for (const float value : {0.0f, -0.0f, 1.0f, -2.0f, 0x1p-130f, 0x1p-149f, 0x1p100f}) {
    const WrittenRow row(KvDType::kFp8E4M3, std::vector<float>(21, value));
    for (const double read : row.read) {
      EXPECT_EQ(std::signbit(read), std::signbit(value));
      EXPECT_NEAR(read, double{value}, std::abs(double{value}) * 1e-6 + 0x1p-136);
    }
  }
}

TEST(StoreKvRow, OneHugeNumberCostsTheOthersTheirDigitsButNothingBecomesInfinite) {
  std::vector<float> values(33, 0.5f);
  values[7] = 1e30f;
  for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4}) {
    const WrittenRow row(dtype, values);
    for (const double read : row.read) EXPECT_TRUE(std::isfinite(read));
    EXPECT_NEAR(row.read[7], 65504, 65504 * 0x1p-10);  // counts as the largest f16
    EXPECT_NEAR(row.read[0], 0.5, 65504.0 / (dtype == KvDType::kInt8 ? 510 : 30) * 1.001);
  }
  values[7] = -1e30f;
  for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4}) {
    EXPECT_NEAR(WrittenRow(dtype, values).read[7], -65504, 65504 * 0x1p-10);
  }
  EXPECT_NEAR(WrittenRow(KvDType::kFp8E4M3, values).read[7], -1e30, 1e24);
  EXPECT_EQ(WrittenRow(KvDType::kFp8E4M3, values).read[0], 0);
}

TEST(StoreKvRow, Fp8WithAFixedScaleSaturates) {
  const std::vector<float> values = {3.0f, -1000.0f, 464.0f, 465.0f, 1e38f, 0.001f, 0.0f};
  const WrittenRow row(KvDType::kFp8E4M3, values, 1.0f);
  EXPECT_THAT(row.read, testing::ElementsAre(3, -448, 448, 448, 448, 0x1p-9, 0));
  EXPECT_EQ(WrittenRow(KvDType::kFp8E4M3, values, 1e-38f).read[0], 448 * double{1e-38f});
}

TEST(StoreKvRow, ARowThatIsNotFiniteReadsAsNotANumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  for_each_simd_target([&](const char* target) {
    for (const KvDType dtype : {KvDType::kInt8, KvDType::kInt4, KvDType::kFp8E4M3}) {
      for (const float value : {std::nanf(""), infinity, -infinity}) {
        for (const size_t at : {0u, 5u, 20u}) {
          std::vector<float> values(21, 1.0f);
          values[at] = value;
          for (const float fixed_scale : {0.0f, 0.5f}) {
            for (const double read : WrittenRow(dtype, values, fixed_scale).read) {
              EXPECT_TRUE(std::isnan(read)) << target << " " << dtype << " " << value;
            }
          }
        }
      }
    }
  });
}

// Every f32 that a quotient can be, in steps, and all that lie half way between two e4m3 values.
TEST(StoreKvRow, Fp8RoundsEveryKindOfQuotientToTheNearestCode) {
  std::vector<float> values;
  for (uint8_t code = 0; code < 0x7E; ++code) {
    const double middle = (e4m3_value(code) + e4m3_value(code + 1)) / 2;
    const auto tie = static_cast<float>(middle);
    for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  for (uint32_t high = 0x3000; high < 0x4400; high += 5) {
    values.push_back(std::bit_cast<float>(high << 16 | 0x1234));
  }
  const StoredRow expected = stored_fp8(values, 1.0f);
  for_each_simd_target([&](const char* target) {
    WrittenRow row(KvDType::kFp8E4M3, values, 1.0f);
    row.data.resize(values.size());
    EXPECT_EQ(row.data, expected.data) << target;
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
    for (const KvDType dtype : {KvDType::kF16, KvDType::kBf16}) {
      std::vector<uint16_t> out(values.size());
      store_kv_row(dtype, values.data(), values.size(), 0,
                   {reinterpret_cast<std::byte*>(out.data()), nullptr});
      for (size_t i = 0; i < values.size(); ++i) {
        const uint16_t expected =
            dtype == KvDType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
        ASSERT_EQ(out[i], expected) << target << " " << dtype << " " << values[i];
      }
    }
  });
}

TEST(WriteKvDeathTest, RejectsAPageTableThatIsTooShort) {
  const KvPageLayout layout{KvDType::kF16, 1, 4, 2};
  std::vector<std::byte> pages(layout.page_bytes());
  const std::vector<int32_t> table = {0};
  const std::vector<BatchSequence> sequences = {{0, 1, 2, table}};
  EXPECT_DEATH(check_sequences({layout, pages.data(), 1}, sequences, 1), "page_table");
}

TEST(WriteKvDeathTest, RejectsAPageOutsideTheCache) {
  const KvPageLayout layout{KvDType::kF16, 1, 4, 2};
  std::vector<std::byte> pages(layout.page_bytes());
  const std::vector<int32_t> table = {1};
  const std::vector<BatchSequence> sequences = {{0, 1, 0, table}};
  EXPECT_DEATH(check_sequences({layout, pages.data(), 1}, sequences, 1), "num_pages");
}

TEST(WriteKvDeathTest, RejectsScalesThatAreNoScales) {
  const KvPageLayout layout{KvDType::kFp8E4M3, 1, 4, 2};
  std::vector<std::byte> pages(layout.page_bytes());
  for (const float scale : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_DEATH(check_sequences({layout, pages.data(), 1, {1.0f, scale}}, {}, 1),
                 "is_usable_scale");
  }
}

}  // namespace
}  // namespace halley
