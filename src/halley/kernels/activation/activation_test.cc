#include "halley/kernels/activation/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/kernels/activation/testing/activation_cases.h"
#include "halley/kernels/activation/testing/activation_reference.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Activation kAll[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                               Activation::kRelu};

// A few roundings of f32 (6e-8 each).
constexpr double kActivationTolerance = 1e-6;
// GELU's tanh form takes the exponential of a rounded argument: an error of 2 ulp of an argument of
// up to 88 shows as 88 times that in a result which is then below 1e-30.
constexpr double kGeluTanhTolerance = 2e-5;
// Results below this are as good as zero: the exponential overflows at the edge of f32's range.
constexpr double kNegligible = 2e-36;

bool is_close(double value, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(value);
  if (std::isinf(expected)) return value == expected;
  return std::abs(value - expected) <= tolerance * std::abs(expected) + kNegligible;
}

// Values over the whole range of f32, both signs, dense where the functions bend.
std::vector<float> sample_points() {
  std::vector<float> points = {0.0f, -0.0f, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f, 1e30f, -1e30f};
  for (float x = 1e-38f; x < 1e5f; x *= 1.01f) {
    points.push_back(x);
    points.push_back(-x);
  }
  for (float x = -20.0f; x < 20.0f; x += 0.0037f) points.push_back(x);
  return points;
}

TEST(Activation, IsAccurateOverTheWholeRangeOnEverySimdTarget) {
  ThreadPool pool(2);
  ExecContext context{pool};
  const std::vector<float> points = sample_points();
  for_each_simd_target([&](const char* target) {
    for (const Activation activation : kAll) {
      std::vector<float> y = points;
      apply_activation(context, activation,
                       f32_matrix(y.data(), 1, static_cast<int64_t>(y.size())));
      double worst = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const double expected = activation_reference(activation, static_cast<double>(points[i]));
        const bool is_deep = activation == Activation::kGeluTanh && points[i] < -3.0f;
        const double tolerance = is_deep ? kGeluTanhTolerance : kActivationTolerance;
        ASSERT_TRUE(is_close(static_cast<double>(y[i]), expected, tolerance))
            << target << " activation " << static_cast<int>(activation) << " x " << points[i]
            << " is " << y[i] << " expected " << expected;
        if (std::abs(expected) > 1e-30 && !std::isinf(expected)) {
          worst = std::max(worst, std::abs(static_cast<double>(y[i]) / expected - 1.0));
        }
      }
      RecordProperty(target + std::to_string(static_cast<int>(activation)), std::to_string(worst));
    }
  });
}

TEST(Activation, KeepsInfinityAndNotANumber) {
  ThreadPool pool(1);
  ExecContext context{pool};
  for_each_simd_target([&](const char* target) {
    for (const Activation activation : kAll) {
      float x[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
      apply_activation(context, activation, f32_matrix(x, 1, 3));
      EXPECT_EQ(x[0], kInfinity) << target << static_cast<int>(activation);
      EXPECT_EQ(x[1], 0.0f) << target << static_cast<int>(activation);
      EXPECT_TRUE(std::isnan(x[2])) << target << static_cast<int>(activation);
    }
    float x[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
    apply_soft_cap(context, 30.0f, f32_matrix(x, 1, 3));
    EXPECT_EQ(x[0], 30.0f) << target;
    EXPECT_EQ(x[1], -30.0f) << target;
    EXPECT_TRUE(std::isnan(x[2])) << target;
  });
}

TEST(ScaleRows, MultipliesEveryElementOnce) {
  ThreadPool pool(2);
  ExecContext context{pool};
  std::vector<float> x = sample_points(), expected = x;
  for (float& value : expected) value *= 0.3f;
  scale_rows(context, 0.3f, f32_matrix(x.data(), 1, static_cast<int64_t>(x.size())));
  EXPECT_EQ(x, expected);
}

TEST(SoftCap, IsAccurateOverTheWholeRangeOnEverySimdTarget) {
  ThreadPool pool(2);
  ExecContext context{pool};
  const std::vector<float> points = sample_points();
  for_each_simd_target([&](const char* target) {
    for (const float cap : {1.0f, 30.0f, 50.0f}) {
      std::vector<float> y = points, expected = points;
      const auto size = static_cast<int64_t>(points.size());
      apply_soft_cap(context, cap, f32_matrix(y.data(), 1, size));
      apply_soft_cap_reference(cap, f32_matrix(expected.data(), 1, size));
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_TRUE(is_close(static_cast<double>(y[i]), static_cast<double>(expected[i]),
                             kActivationTolerance))
            << target << " cap " << cap << " x " << points[i] << " is " << y[i];
      }
    }
  });
}

TEST(GatedActivation, AgreesWithTheReferenceAndWritesItsOutputOnly) {
  ThreadPool pool(2);
  ExecContext context{pool};
  for_each_simd_target([&](const char* target) {
    for (const MlpShape& shape : activation_test_cases()) {
      for (const Activation activation : kAll) {
        GuardedMatrix x(shape.num_rows, 2 * shape.num_cols), y(shape.num_rows, shape.num_cols);
        GuardedMatrix expected(shape.num_rows, shape.num_cols);
        x.fill_normal(3, 2.0f);
        gated_activation(context, activation, x.matrix(), y.matrix());
        gated_activation_reference(activation, x.matrix(), expected.matrix());
        EXPECT_TRUE(y.guards_are_intact()) << target;
        for (int64_t m = 0; m < shape.num_rows; ++m) {
          for (int64_t i = 0; i < shape.num_cols; ++i) {
            ASSERT_TRUE(is_close(static_cast<double>(y.row(m)[i]),
                                 static_cast<double>(expected.row(m)[i]), kGeluTanhTolerance))
                << target << " " << m << "," << i << " of " << shape.num_cols;
          }
        }
      }
    }
  });
}

TEST(GatedActivation, ARowsBitsDoNotDependOnTheBatchOrTheThreads) {
  ThreadPool pool(3), single(1);
  ExecContext context{pool}, single_context{single};
  GuardedMatrix x(40, 2 * 515), y(40, 515), z(40, 515);
  x.fill_normal(5);
  gated_activation(context, Activation::kGeluErf, x.matrix(), y.matrix());
  for (int64_t m = 0; m < 40; ++m) {
    gated_activation(single_context, Activation::kGeluErf, x.matrix().rows(m, m + 1),
                     z.matrix().rows(m, m + 1));
    EXPECT_TRUE(y.row_equals(m, z.row(m))) << m;
  }
}

}  // namespace
}  // namespace halley
