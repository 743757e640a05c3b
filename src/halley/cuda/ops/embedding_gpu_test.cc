#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/ops/embedding.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

using EmbeddingGpuTest = GpuTest;

TEST_F(EmbeddingGpuTest, ReadsTheRowsOfTheIds) {
  const std::vector<int32_t> ids = {0, 499, 7, 7, 3};
  const DeviceArray<int32_t> device_ids(ids);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t K : {1, 33, 512, 4096}) {
      DeviceMatrix table(dtype, 500, K);
      table.fill_normal(static_cast<uint32_t>(K));
      const std::vector<float> rows = table.get(stream_);
      DeviceMatrix y(DType::kF32, 5, K);
      embedding(context_, table.matrix(), device_ids.data(), 1.5f, false, y.matrix());
      std::vector<float> expected;
      for (const int32_t id : ids) {
        for (int64_t k = 0; k < K; ++k) {
          expected.push_back(rows[static_cast<size_t>(id * K + k)] * 1.5f);
        }
      }
      EXPECT_EQ(y.get(stream_), expected);
      embedding(context_, table.matrix(), device_ids.data(), 1.5f, true, y.matrix());
      for (float& value : expected) value *= 2;
      EXPECT_EQ(y.get(stream_), expected);
      EXPECT_TRUE(y.guards_are_intact(stream_));
    }
  }
}

TEST_F(EmbeddingGpuTest, GathersRows) {
  const std::vector<int32_t> rows = {4, 0, 4};
  const DeviceArray<int32_t> device_rows(rows);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    DeviceMatrix x(dtype, 5, 1027);
    x.fill_normal(2);
    const DeviceMatrix y(dtype, 3, 1027);
    gather_rows(context_, x.matrix(), device_rows.data(), y.matrix());
    const std::vector<float> from = x.get(stream_);
    std::vector<float> expected;
    for (const int32_t row : rows) {
      expected.insert(expected.end(), from.begin() + row * 1027, from.begin() + (row + 1) * 1027);
    }
    EXPECT_EQ(y.get(stream_), expected);
    EXPECT_TRUE(y.guards_are_intact(stream_));
  }
}

}  // namespace
}  // namespace halley::cuda
