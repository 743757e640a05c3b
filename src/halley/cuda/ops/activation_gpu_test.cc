#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/ops/activation.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/kernels/activation/testing/activation_reference.h"

namespace halley::cuda {
namespace {

constexpr Activation kAll[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                               Activation::kRelu};

double tolerance_of(DType dtype) {
  if (dtype == DType::kF32) return 4e-6;
  return dtype == DType::kF16 ? 6e-4 : 5e-3;
}

using ActivationGpuTest = GpuTest;

TEST_F(ActivationGpuTest, GatedAgreesWithTheDefinition) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    for (const int64_t F : {1, 3, 4, 64, 1408, 14336}) {
      for (const int64_t M : {0, 1, 7, 130}) {
        for (const Activation activation : kAll) {
          DeviceMatrix gate_up(dtype, M, 2 * F);
          const DeviceMatrix y(dtype, M, F);
          gate_up.fill_normal(static_cast<uint32_t>(F + M), 2.0f);
          gated_activation(context_, activation, gate_up.matrix(), y.matrix());
          const std::vector<float> x = gate_up.get(stream_), got = y.get(stream_);
          for (int64_t i = 0; i < M * F; ++i) {
            const auto gate = static_cast<size_t>(i / F * 2 * F + i % F);
            const double right = activation_reference(activation, double{x[gate]}) *
                                 double{x[gate + static_cast<size_t>(F)]};
            ASSERT_NEAR(got[static_cast<size_t>(i)], right,
                        tolerance_of(dtype) * std::max(1.0, std::abs(right)))
                << name_of(dtype) << " " << static_cast<int>(activation) << " " << i;
          }
          EXPECT_TRUE(y.guards_are_intact(stream_));
        }
      }
    }
  }
}

TEST_F(ActivationGpuTest, PlainAgreesWithTheDefinitionAtExtremesToo) {
  const std::vector<float> extremes = {-INFINITY, -3e38f, -60000.0f, -90.0f, -88.0f, -87.6f,
                                       -1.0f,     -0.0f,  0.0f,      1e-5f,  1.0f,   60000.0f};
  for (const int copies : {1, 4}) {  // 6 columns take the scalar kernel, 24 the vectorized one
    std::vector<float> values;
    for (int i = 0; i < copies; ++i) {
      values.insert(values.end(), extremes.begin(), extremes.end());
    }
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
      for (const Activation activation : kAll) {
        DeviceMatrix x(dtype, 2, 6 * copies);
        x.set(values);
        const std::vector<float> before = x.get(stream_);
        apply_activation(context_, activation, x.matrix());
        const std::vector<float> after = x.get(stream_);
        for (size_t i = 0; i < after.size(); ++i) {
          const double right = activation_reference(activation, double{before[i]});
          ASSERT_NEAR(after[i], right, tolerance_of(dtype) * std::max(1.0, std::abs(right)))
              << name_of(dtype) << " " << static_cast<int>(activation) << " of " << before[i];
        }
        EXPECT_TRUE(x.guards_are_intact(stream_));
      }
    }
  }
}

TEST_F(ActivationGpuTest, Vec8AndScalarKernelsGiveTheSameBits) {
  constexpr int64_t kRows = 70, kColumns = 200;
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const Activation activation : kAll) {
      // A gap of 1 breaks the alignment.
      DeviceMatrix aligned(dtype, kRows, 2 * kColumns), odd(dtype, kRows, 2 * kColumns, 1);
      aligned.fill_normal(5, 3.0f);
      odd.set(aligned.get(stream_));
      const DeviceMatrix y(dtype, kRows, kColumns), odd_y(dtype, kRows, kColumns, 1);
      gated_activation(context_, activation, aligned.matrix(), y.matrix());
      gated_activation(context_, activation, odd.matrix(), odd_y.matrix());
      EXPECT_EQ(y.get(stream_), odd_y.get(stream_)) << static_cast<int>(activation);
      EXPECT_TRUE(y.guards_are_intact(stream_) && odd_y.guards_are_intact(stream_));
    }
  }
}

TEST_F(ActivationGpuTest, SoftCapAgreesWithTheDefinition) {
  DeviceMatrix x(DType::kF32, 3, 1001);
  x.fill_normal(4, 50.0f);
  const std::vector<float> before = x.get(stream_);
  apply_soft_cap(context_, 30.0f, x.matrix());
  const std::vector<float> after = x.get(stream_);
  for (size_t i = 0; i < after.size(); ++i) {
    ASSERT_NEAR(after[i], 30.0 * std::tanh(double{before[i]} / 30.0), 1e-4) << i;
  }
  EXPECT_TRUE(x.guards_are_intact(stream_));
}

TEST_F(ActivationGpuTest, ScaleRowsMultiplies) {
  DeviceMatrix x(DType::kF32, 3, 1001);
  x.fill_normal(5, 10.0f);
  std::vector<float> expected = x.get(stream_);
  for (float& value : expected) value *= 0.3f;
  scale_rows(context_, 0.3f, x.matrix());
  EXPECT_EQ(x.get(stream_), expected);
  EXPECT_TRUE(x.guards_are_intact(stream_));
}

}  // namespace
}  // namespace halley::cuda
