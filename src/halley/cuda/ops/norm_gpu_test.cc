#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/kernels/norm/testing/norm_cases.h"
#include "halley/kernels/norm/testing/norm_reference.h"

namespace halley::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;

/// Half an ulp of the type, relative, plus the error of f32 accumulation.
double tolerance_of(DType dtype) {
  if (dtype == DType::kF32) return 4e-6;
  return dtype == DType::kF16 ? 6e-4 : 5e-3;
}

std::vector<NormShape> shapes() {
  std::vector<NormShape> shapes = norm_test_cases();
  for (const NormShape& more : {NormShape{1, 4096},
                                {65, 4096},
                                {3, 8192},
                                {2, 16384},
                                {1, 20000},
                                {260, 4096},
                                {257, 132}}) {
    shapes.push_back(more);
  }
  return shapes;
}

class NormGpuTest : public GpuTest {
 protected:
  std::vector<float> expected(const NormParams& host, const std::vector<float>& x,
                              const NormShape& shape) const {
    std::vector<float> y(x.size());
    const ConstMatrix from = f32_matrix(x.data(), shape.num_rows, shape.num_cols);
    const Matrix to = f32_matrix(y.data(), shape.num_rows, shape.num_cols);
    if (host.is_layer_norm) {
      layer_norm_reference(from, host.weight, host.bias, host.epsilon, to);
    } else {
      rms_norm_reference(from, host.weight, host.weight_offset, host.epsilon, to);
    }
    return y;
  }

  void expect_near(const std::vector<float>& got, const std::vector<float>& right, DType dtype,
                   const std::string& what) const {
    ASSERT_EQ(got.size(), right.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double size = std::max(1.0, std::abs(static_cast<double>(right[i])));
      ASSERT_NEAR(got[i], right[i], tolerance_of(dtype) * size) << what << " at " << i;
    }
  }
};

TEST_F(NormGpuTest, AgreesWithTheReferenceInEveryType) {
  for (const NormShape& shape : shapes()) {
    const auto K = static_cast<size_t>(shape.num_cols);
    std::vector<float> weight(K), bias(K);
    for (size_t i = 0; i < K; ++i) {
      weight[i] = 0.5f + static_cast<float>(i % 7) / 4;
      bias[i] = static_cast<float>(i % 5) - 2;
    }
    const DeviceArray<float> device_weight(weight), device_bias(bias);
    for (const bool is_layer_norm : {false, true}) {
      const NormParams host = {.is_layer_norm = is_layer_norm,
                               .weight = weight.data(),
                               .bias = bias.data(),
                               .weight_offset = is_layer_norm ? 0.0f : 1.0f,
                               .epsilon = kEpsilon};
      NormParams params = host;
      params.weight = device_weight.data();
      params.bias = device_bias.data();
      for (const DType x_type : {DType::kF32, DType::kF16, DType::kBf16}) {
        for (const DType y_type : {DType::kF32, DType::kF16, DType::kBf16}) {
          for (const int64_t gap : {16, 1}) {  // 1: rows are not aligned for vectors of 4
            DeviceMatrix x(x_type, shape.num_rows, shape.num_cols, gap);
            const DeviceMatrix y(y_type, shape.num_rows, shape.num_cols, gap);
            x.fill_normal(3, 4.0f, 0.5f);
            norm_rows(context_, params, x.matrix(), y.matrix());
            const std::string what = str(name_of(x_type), " to ", name_of(y_type), ", ",
                                         shape.num_rows, " x ", shape.num_cols);
            // With few columns the elements may be nearly equal, which magnifies roundings of the
            // mean.
            if (is_layer_norm && shape.num_cols < 8) continue;
            expect_near(y.get(stream_), expected(host, x.get(stream_), shape), y_type, what);
            EXPECT_TRUE(y.guards_are_intact(stream_)) << what;
          }
        }
      }
    }
  }
}

TEST_F(NormGpuTest, AddsTheBlockToTheStreamFirst) {
  for (const NormShape& shape : shapes()) {
    const std::vector<float> weight(static_cast<size_t>(shape.num_cols), 1.5f);
    const DeviceArray<float> device_weight(weight);
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      DeviceMatrix block(dtype, shape.num_rows, shape.num_cols);
      DeviceMatrix hidden(DType::kF32, shape.num_rows, shape.num_cols);
      const DeviceMatrix y(dtype, shape.num_rows, shape.num_cols);
      block.fill_normal(5);
      hidden.fill_normal(6, 3.0f);
      const std::vector<float> added = block.get(stream_);
      std::vector<float> sum = hidden.get(stream_);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
      const NormParams host = {.weight = weight.data(), .epsilon = kEpsilon};
      NormParams params = host;
      params.weight = device_weight.data();
      add_norm_rows(context_, params, block.matrix(), hidden.matrix(), y.matrix());
      EXPECT_EQ(hidden.get(stream_), sum);
      expect_near(y.get(stream_), expected(host, sum, shape), dtype, name_of(dtype));
      EXPECT_TRUE(hidden.guards_are_intact(stream_) && y.guards_are_intact(stream_));
    }
  }
}

TEST_F(NormGpuTest, ARowIsTheSameInAnyBatch) {
  for (const int64_t K : {4096, 8192, 2056}) {
    std::vector<float> weight(static_cast<size_t>(K));
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.5f + static_cast<float>(i % 7) / 4;
    const DeviceArray<float> device_weight(weight);
    const NormParams params = {.weight = device_weight.data(), .epsilon = kEpsilon};
    const int64_t many = 2 * device_.num_sms + 1;  // dispatched to another kernel than small M
    for (const int64_t M : {int64_t{70}, many}) {
      DeviceMatrix x(DType::kBf16, M, K), hidden(DType::kF32, M, K), other(DType::kF32, M, K);
      const DeviceMatrix all(DType::kBf16, M, K), one(DType::kBf16, 1, K);
      x.fill_normal(9);
      hidden.fill_normal(10);
      other.fill_normal(10);
      add_norm_rows(context_, params, x.matrix(), hidden.matrix(), all.matrix());
      add_norm_rows(context_, params, x.matrix().rows(M - 1, M), other.matrix().rows(M - 1, M),
                    one.matrix());
      const std::vector<float> rows = all.get(stream_);
      EXPECT_EQ(one.get(stream_), std::vector<float>(rows.end() - K, rows.end()))
          << M << " x " << K;
    }
  }
}

TEST_F(NormGpuTest, ManyRowsHaveTheBitsOfOne) {
  for (const int64_t K : {4, 124, 128, 1028, 3072, 4096, 4100, 5120, 8188, 8192, 8196}) {
    const std::vector<float> weight(static_cast<size_t>(K), 0.75f);
    const DeviceArray<float> device_weight(weight);
    const NormParams params = {
        .weight = device_weight.data(), .weight_offset = 1.0f, .epsilon = kEpsilon};
    constexpr int64_t kRows = 600;
    DeviceMatrix block(DType::kF16, kRows, K), hidden(DType::kF32, kRows, K);
    DeviceMatrix hidden_of_one(DType::kF32, 1, K);
    const DeviceMatrix all(DType::kF16, kRows, K), one(DType::kF16, 1, K);
    block.fill_normal(11);
    hidden.fill_normal(12, 3.0f);
    const std::vector<float> before = hidden.get(stream_);
    add_norm_rows(context_, params, block.matrix(), hidden.matrix(), all.matrix());
    const std::vector<float> rows = all.get(stream_), after = hidden.get(stream_);
    EXPECT_TRUE(all.guards_are_intact(stream_) && hidden.guards_are_intact(stream_));
    for (const int64_t m : {int64_t{0}, int64_t{299}, kRows - 1}) {
      const auto begin = static_cast<std::ptrdiff_t>(m * K);
      hidden_of_one.set({before.begin() + begin, before.begin() + begin + K});
      add_norm_rows(context_, params, block.matrix().rows(m, m + 1), hidden_of_one.matrix(),
                    one.matrix());
      EXPECT_EQ(one.get(stream_),
                std::vector<float>(rows.begin() + begin, rows.begin() + begin + K))
          << K << " " << m;
      EXPECT_EQ(hidden_of_one.get(stream_),
                std::vector<float>(after.begin() + begin, after.begin() + begin + K));
    }
  }
}

TEST_F(NormGpuTest, AddRowsIsExact) {
  for (const NormShape& shape : shapes()) {
    DeviceMatrix block(DType::kF16, shape.num_rows, shape.num_cols);
    DeviceMatrix hidden(DType::kF32, shape.num_rows, shape.num_cols);
    block.fill_normal(7);
    hidden.fill_normal(8);
    const std::vector<float> added = block.get(stream_);
    std::vector<float> sum = hidden.get(stream_);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    add_rows(context_, block.matrix(), hidden.matrix());
    EXPECT_EQ(hidden.get(stream_), sum);
    EXPECT_TRUE(hidden.guards_are_intact(stream_));
  }
}

TEST_F(NormGpuTest, AddRoundRowsRoundsTheSum) {
  for (const NormShape& shape : shapes()) {
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      DeviceMatrix block(dtype, shape.num_rows, shape.num_cols);
      DeviceMatrix hidden(DType::kF32, shape.num_rows, shape.num_cols);
      const DeviceMatrix y(dtype, shape.num_rows, shape.num_cols);
      block.fill_normal(13);
      hidden.fill_normal(14, 3.0f);
      const std::vector<float> added = block.get(stream_);
      std::vector<float> sum = hidden.get(stream_);
      add_round_rows(context_, {}, hidden.matrix(), y.matrix());
      EXPECT_EQ(hidden.get(stream_), sum) << "no block";
      expect_near(y.get(stream_), sum, dtype, "no block");
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
      add_round_rows(context_, block.matrix(), hidden.matrix(), y.matrix());
      EXPECT_EQ(hidden.get(stream_), sum);
      expect_near(y.get(stream_), sum, dtype, name_of(dtype));
      EXPECT_TRUE(hidden.guards_are_intact(stream_) && y.guards_are_intact(stream_));
    }
  }
}

}  // namespace
}  // namespace halley::cuda
