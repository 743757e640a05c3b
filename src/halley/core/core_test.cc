#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/dtype.h"
#include "halley/core/float16.h"
#include "halley/core/host_buffer.h"
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
