#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/ops/join_columns.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class JoinColumnsGpuTest : public GpuTest {
 protected:
  void compare(DType dtype, const ColumnShares& shares, int64_t M) {
    const int64_t stride = shares.width_max() + 3;
    DeviceMatrix parts(dtype, M * shares.num_parts(), stride, 0);
    parts.fill_normal(static_cast<uint32_t>(M));
    const DeviceMatrix all(dtype, M, shares.num_columns());
    join_columns(context_, shares, parts.matrix().data, stride, all.matrix());
    const std::vector<float> from = parts.get(stream_);
    std::vector<float> expected;
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t part = 0; part < shares.num_parts(); ++part) {
        const auto index = static_cast<size_t>(part);
        const int64_t width = shares.begins[index + 1] - shares.begins[index];
        const auto row = from.begin() + (part * M + m) * stride;
        expected.insert(expected.end(), row, row + width);
      }
    }
    EXPECT_EQ(all.get(stream_), expected) << name_of(dtype) << " " << M;
    EXPECT_TRUE(all.guards_are_intact(stream_));
  }
};

TEST_F(JoinColumnsGpuTest, PutsPartsNextToEachOther) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t M : {1, 7, 300}) {
      compare(dtype, {.begins = {0, 1024}}, M);
      compare(dtype, {.begins = {0, 496, 1000}}, M);
      compare(dtype, {.begins = {0, 16, 48, 48, 65}}, M);
    }
  }
}

}  // namespace
}  // namespace halley::cuda
