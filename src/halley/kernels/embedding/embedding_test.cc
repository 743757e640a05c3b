#include "halley/kernels/embedding/embedding.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/kernels/gemm/pack_dense.h"

namespace halley {
namespace {

// Row v, column k of the table holds v * 4 + k / 8: exact in every type.
float table_value(int64_t v, int64_t k) {
  return static_cast<float>(v) * 4 + static_cast<float>(k) / 8;
}

TEST(Embedding, LooksUpAndScalesFromEveryLayout) {
  constexpr int64_t kV = 61, kK = 7;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    std::vector<float> wide;
    std::vector<uint16_t> narrow;
    for (int64_t v = 0; v < kV; ++v) {
      for (int64_t k = 0; k < kK; ++k) {
        // bf16 has 8 bits: drop the eighths.
        const float value = dtype == DType::kBf16 ? static_cast<float>(v) : table_value(v, k);
        wide.push_back(value);
        narrow.push_back(dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
      }
    }
    const auto* data = dtype == DType::kF32 ? reinterpret_cast<const std::byte*>(wide.data())
                                            : reinterpret_cast<const std::byte*>(narrow.data());
    for (const int num_threads : {1, 2}) {
      ThreadPool pool(num_threads);
      ExecContext context{pool};
      const PackedWeight table =
          pack_dense(context, std::vector<TensorView>{{data, dtype, {kV, kK}}});
      const std::vector<int32_t> ids = {0, 60, 31, 32, 33, 31};
      constexpr int64_t kStride = kK + 2;
      std::vector<float> storage(ids.size() * kStride, std::numeric_limits<float>::quiet_NaN());
      Matrix y = f32_matrix(storage.data(), static_cast<int64_t>(ids.size()), kK);
      y.row_stride = kStride;
      for (const float scale : {1.0f, 0.3f}) {
        embedding(context, table, ids, scale, y);
        for (size_t m = 0; m < ids.size(); ++m) {
          for (int64_t k = 0; k < kStride; ++k) {
            const float actual = storage[m * kStride + static_cast<size_t>(k)];
            if (k >= kK) {
              EXPECT_TRUE(std::isnan(actual)) << "wrote outside the row";
            } else {
              EXPECT_EQ(actual, wide[static_cast<size_t>(ids[m] * kK + k)] * scale) << dtype;
            }
          }
        }
      }
      embedding(context, table, {}, 1.0f, f32_matrix(storage.data(), 0, kK));
    }
  }
}

TEST(EmbeddingDeathTest, AnIdOutsideTheTableIsOurBug) {
  ThreadPool pool(1);
  ExecContext context{pool};
  const std::vector<float> rows(8);
  const PackedWeight table = pack_dense(
      context, std::vector<TensorView>{
                   {reinterpret_cast<const std::byte*>(rows.data()), DType::kF32, {4, 2}}});
  std::vector<float> y(2);
  const std::vector<int32_t> ids = {4};
  EXPECT_DEATH(embedding(context, table, ids, 1.0f, f32_matrix(y.data(), 1, 2)), "n < weight.N");
}

}  // namespace
}  // namespace halley
