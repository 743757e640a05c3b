#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/dtype.h"
#include "halley/core/element.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/host_buffer.h"
#include "halley/core/packed_weight.h"
#include "halley/core/tensor.h"
#include "halley/core/thread_pool.h"

namespace halley {
namespace {

TEST(DType, NamesAndSizesAgree) {
  EXPECT_EQ(dtype_from_safetensors("BF16"), DType::kBf16);
  EXPECT_STREQ(name_of(DType::kF8E4M3), "f8_e4m3");
  EXPECT_EQ(bits_of(DType::kF4), 4);
  EXPECT_EQ(bits_of(DType::kU64), 64);
  EXPECT_FALSE(dtype_from_safetensors("f16"));
}

TEST(Element, IsReadAtAnyAddress) {
  const auto read = [](DType dtype, auto bits) {
    std::byte bytes[sizeof(bits) + 1];
    std::memcpy(bytes + 1, &bits, sizeof(bits));
    return element_to_f32(dtype, bytes + 1);
  };
  EXPECT_EQ(read(DType::kF32, -1.5f), -1.5f);
  EXPECT_EQ(read(DType::kF16, uint16_t{0x3C01}), 1 + 0x1p-10f);
  EXPECT_EQ(read(DType::kBf16, uint16_t{0x3F81}), 1 + 0x1p-7f);
  EXPECT_EQ(read(DType::kF8E4M3, uint8_t{0xFE}), -448.0f);
  EXPECT_EQ(read(DType::kI8, int8_t{-128}), -128.0f);
  EXPECT_EQ(read(DType::kI32, int32_t{-16777217}), -16777216.0f);
}

TEST(Float16, RoundTripsEveryBitPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(pattern);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), pattern) << value;
    }
    const float wide = bf16_to_f32(pattern);
    if (!std::isnan(wide)) {
      ASSERT_EQ(f32_to_bf16(wide), pattern) << wide;
    }
  }
}

TEST(Float16, RoundsToNearestEvenBetweenEveryPairOfNeighbours) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = f16_to_f32(bits);
    const float high = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact in f32
    const auto even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(f32_to_f16(middle), even) << middle;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits) << middle;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), bits + 1) << middle;
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xFC00);
}

// Decodes e4m3 by the format's definition.
double e4m3_value(int code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// The nearest code of the value's sign by search; of two, the even one.
uint8_t nearest_e4m3(float value) {
  int best = 0;
  for (int code = 1; code < 0x7F; ++code) {
    const double distance = std::abs(e4m3_value(code) - std::abs(double{value}));
    const double best_distance = std::abs(e4m3_value(best) - std::abs(double{value}));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

TEST(Float8, EveryCodeHasItsValue) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_f32(static_cast<uint8_t>(code));
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_EQ(f32_to_e4m3(value), code);
    } else {
      EXPECT_EQ(double{value}, e4m3_value(code)) << code;
      EXPECT_EQ(f32_to_e4m3(value), code) << value;
    }
  }
}

TEST(Float8, RoundsEveryF16ToTheNearestCode) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_e4m3(value) & 0x7F, 0x7F) << bits;
    } else if (std::isinf(value)) {
      ASSERT_EQ(f32_to_e4m3(value), value < 0 ? 0xFE : 0x7E);
    } else {
      ASSERT_EQ(f32_to_e4m3(value), nearest_e4m3(value)) << value;
    }
  }
}

TEST(Float8, RoundsNumbersBesideEveryTieAndAtRandom) {
  for (int code = 0; code < 0x7E; ++code) {
    const auto tie = static_cast<float>((e4m3_value(code) + e4m3_value(code + 1)) / 2);
    for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      EXPECT_EQ(f32_to_e4m3(value), nearest_e4m3(value)) << value;
      EXPECT_EQ(f32_to_e4m3(-value), nearest_e4m3(-value)) << -value;
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    // Magnitudes run from far below the smallest e4m3 value to far above the largest.
    const auto sign_and_fraction = static_cast<uint32_t>(random() & 0x807FFFFFu);
    const auto exponent = static_cast<uint32_t>(110 + random() % 30);
    const float value = std::bit_cast<float>(sign_and_fraction | (exponent << 23));
    ASSERT_EQ(f32_to_e4m3(value), nearest_e4m3(value)) << value;
  }
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_e4m3(-std::numeric_limits<float>::max()), 0xFE);
}

TEST(PackedWeight, CountsTheBytesOfQuadLayouts) {
  struct Bytes {
    PackedLayout layout;
    size_t of_unit;
  };
  for (const auto& [layout, of_unit] :
       {Bytes{PackedLayout::kU8Quad, 1024}, Bytes{PackedLayout::kF8E4M3Quad, 1024},
        Bytes{PackedLayout::kU4Quad, 512}, Bytes{PackedLayout::kU3Quad, 384},
        Bytes{PackedLayout::kU2Quad, 256}}) {
    EXPECT_TRUE(is_quantized(layout));
    EXPECT_EQ(packed_bytes(layout, 32, 32), of_unit) << layout;
    EXPECT_EQ(packed_bytes(layout, 1, 1), of_unit) << layout;
    EXPECT_EQ(packed_bytes(layout, 33, 33), 4 * of_unit) << layout;
    EXPECT_EQ(packed_bytes(layout, 0, 33), 0u) << layout;
    // Above 2^31 bytes of panels' codes.
    EXPECT_EQ(packed_bytes(layout, 1 << 20, 1 << 15), of_unit << 25) << layout;
  }
  EXPECT_FALSE(is_quantized(PackedLayout::kBf16PairPanel));
}

TEST(PackedWeight, FindsTheGroupsOfAPanel) {
  EXPECT_EQ(group_bytes(1, 1, 1), 256u);
  EXPECT_EQ(group_bytes(33, 100, 32), 2 * 4 * 256u);
  EXPECT_EQ(group_bytes(32, 100, 100), 256u);
  EXPECT_EQ(group_bytes(int64_t{1} << 20, 1 << 15, 16), size_t{256} << 26);
  PackedWeight weight;
  weight.layout = PackedLayout::kU4Quad;
  weight.N = 70;
  weight.K = 100;
  weight.quant.group_size = 30;
  weight.quant.groups = HostBuffer(group_bytes(70, 100, 30));
  EXPECT_EQ(weight.num_groups(), 4);
  const float* begin = weight.quant.groups.as<float>().data();
  EXPECT_EQ(weight.group(0, 0), begin);
  EXPECT_EQ(weight.group(0, 3), begin + 3 * 64);
  EXPECT_EQ(weight.group(2, 1), begin + (2 * 4 + 1) * 64);
}

TEST(TensorView, CountsAndSlices) {
  std::vector<float> data(12);
  const TensorView view{reinterpret_cast<const std::byte*>(data.data()), DType::kF32, {3, 4}};
  EXPECT_EQ(view.num_elements(), 12);
  EXPECT_EQ(view.num_bytes(), 48u);
  const TensorView part = view.rows(1, 3);
  EXPECT_EQ(part.shape, (Shape{2, 4}));
  EXPECT_EQ(part.data, view.data + 16);
  EXPECT_FALSE(num_elements_of(Shape{-1, 2}));
  EXPECT_FALSE(num_elements_of(Shape{int64_t{1} << 62, 4}));
}

TEST(HostBuffer, IsAligned) {
  for (const size_t num_bytes : {size_t{1}, size_t{100}, size_t{9} << 20}) {
    HostBuffer buffer(num_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % HostBuffer::kAlignment, 0u);
    std::memset(buffer.data(), 1, num_bytes);
  }
}

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    for (const int64_t num_tasks : {0, 1, 2, 7, 100, 1000}) {
      std::vector<std::atomic<int>> counts(static_cast<size_t>(num_tasks));
      for (int repeat = 0; repeat < 20; ++repeat) {
        pool.run(num_tasks, [&](int64_t task, int thread) {
          ASSERT_LT(thread, num_threads);
          counts[static_cast<size_t>(task)].fetch_add(1);
        });
      }
      for (const auto& count : counts) ASSERT_EQ(count.load(), 20);
    }
  }
}

}  // namespace
}  // namespace halley
