#include "halley/kernels/norm/norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/kernels/norm/testing/norm_cases.h"
#include "halley/kernels/norm/testing/norm_reference.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

// Results are of size 1; a sum of K positive terms in f32 over 4 or more running sums has a
// relative error below K / 16 roundings of 6e-8 in the worst case, and far less in practice.
constexpr double kNormTolerance = 2e-6;
// LayerNorm of rows with mean 1000 and deviation 1: the mean is rounded at 6e-5.
constexpr double kFarMeanTolerance = 2e-4;
constexpr float kEpsilon = 1e-5f;

void expect_close(GuardedMatrix& y, GuardedMatrix& expected, double tolerance,
                  const std::string& what) {
  EXPECT_TRUE(y.guards_are_intact()) << what;
  for (int64_t m = 0; m < y.num_rows(); ++m) {
    for (int64_t i = 0; i < y.num_cols(); ++i) {
      const auto value = static_cast<double>(y.row(m)[i]);
      const auto right = static_cast<double>(expected.row(m)[i]);
      ASSERT_LE(std::abs(value - right), tolerance * std::max(1.0, std::abs(right)))
          << what << " " << m << "," << i << " of " << y.num_cols();
    }
  }
}

class Norm : public testing::Test {
 protected:
  ThreadPool pool_{2};
  ExecContext context_{pool_};
  GuardedMatrix weight_{1, 5001}, bias_{1, 5001};
  void SetUp() override {
    weight_.fill_normal(1);
    bias_.fill_normal(2);
  }
};

TEST_F(Norm, RmsNormAgreesWithTheReferenceOnEverySimdTarget) {
  for_each_simd_target([&](const char* target) {
    for (const NormShape& shape : norm_test_cases()) {
      for (const float offset : {0.0f, 1.0f}) {
        GuardedMatrix x(shape.num_rows, shape.num_cols), y(shape.num_rows, shape.num_cols, 2);
        GuardedMatrix expected(shape.num_rows, shape.num_cols);
        x.fill_normal(3, 4.0f);
        rms_norm(context_, x.matrix(), weight_.row(0), offset, kEpsilon, y.matrix());
        rms_norm_reference(x.matrix(), weight_.row(0), offset, kEpsilon, expected.matrix());
        expect_close(y, expected, kNormTolerance, target);
        rms_norm(context_, x.matrix(), weight_.row(0), offset, kEpsilon, x.matrix());
        for (int64_t m = 0; m < shape.num_rows; ++m) {
          EXPECT_TRUE(x.row_equals(m, y.row(m))) << "in place, " << target;
        }
      }
    }
  });
}

TEST_F(Norm, RmsNormHeadsNormsEachGroupAlone) {
  for_each_simd_target([&](const char* target) {
    for (const int64_t head_dim : {1, 16, 31, 64, 80, 128}) {
      GuardedMatrix x(5, 3 * head_dim), expected(5, 3 * head_dim);
      x.fill_normal(4);
      for (int64_t head = 0; head < 3; ++head) {
        const int64_t begin = head * head_dim;
        rms_norm_reference(x.matrix().cols(begin, begin + head_dim), weight_.row(0), 1.0f, kEpsilon,
                           expected.matrix().cols(begin, begin + head_dim));
      }
      rms_norm_heads(context_, x.matrix(), head_dim, weight_.row(0), 1.0f, kEpsilon);
      expect_close(x, expected, kNormTolerance, target);
    }
  });
}

TEST_F(Norm, LayerNormAgreesWithTheReferenceOnEverySimdTarget) {
  for_each_simd_target([&](const char* target) {
    for (const NormShape& shape : norm_test_cases()) {
      for (const float* bias :
           {static_cast<const float*>(nullptr), static_cast<const float*>(bias_.row(0))}) {
        GuardedMatrix x(shape.num_rows, shape.num_cols), y(shape.num_rows, shape.num_cols, 2);
        GuardedMatrix expected(shape.num_rows, shape.num_cols);
        x.fill_normal(5);
        layer_norm(context_, x.matrix(), weight_.row(0), bias, kEpsilon, y.matrix());
        layer_norm_reference(x.matrix(), weight_.row(0), bias, kEpsilon, expected.matrix());
        // Few columns may be nearly equal, which magnifies the mean's rounding.
        expect_close(y, expected, shape.num_cols < 8 ? kFarMeanTolerance : kNormTolerance, target);
      }
    }
  });
}

TEST_F(Norm, LayerNormKeepsItsVarianceWhereTheMeanIsLarge) {
  for_each_simd_target([&](const char* target) {
    GuardedMatrix x(2, 2048), y(2, 2048), expected(2, 2048);
    x.fill_normal(6, 1.0f, 1000.0f);
    layer_norm(context_, x.matrix(), weight_.row(0), nullptr, kEpsilon, y.matrix());
    layer_norm_reference(x.matrix(), weight_.row(0), nullptr, kEpsilon, expected.matrix());
    expect_close(y, expected, kFarMeanTolerance, target);
  });
}

TEST_F(Norm, AddRowsIsExact) {
  for_each_simd_target([&](const char* target) {
    for (const NormShape& shape : norm_test_cases()) {
      GuardedMatrix x(shape.num_rows, shape.num_cols), y(shape.num_rows, shape.num_cols, 1);
      x.fill_normal(7);
      y.fill_normal(8);
      GuardedMatrix before = y;
      add_rows(context_, x.matrix(), y.matrix());
      EXPECT_TRUE(y.guards_are_intact()) << target;
      for (int64_t m = 0; m < shape.num_rows; ++m) {
        for (int64_t i = 0; i < shape.num_cols; ++i) {
          ASSERT_EQ(y.row(m)[i], before.row(m)[i] + x.row(m)[i]) << target;
        }
      }
    }
  });
}

TEST_F(Norm, ARowsBitsDoNotDependOnTheBatchOrTheThreads) {
  ThreadPool single(1);
  ExecContext single_context{single};
  GuardedMatrix x(64, 1030), y(64, 1030), z(64, 1030);
  x.fill_normal(9);
  const auto compare = [&](const auto& norm) {
    norm(context_, x.matrix(), y.matrix());
    for (int64_t m = 0; m < 64; ++m) {
      norm(single_context, x.matrix().rows(m, m + 1), z.matrix().rows(m, m + 1));
      EXPECT_TRUE(y.row_equals(m, z.row(m))) << m;
    }
  };
  compare([&](ExecContext& context, ConstMatrix from, Matrix to) {
    rms_norm(context, from, weight_.row(0), 0.0f, kEpsilon, to);
  });
  compare([&](ExecContext& context, ConstMatrix from, Matrix to) {
    layer_norm(context, from, weight_.row(0), bias_.row(0), kEpsilon, to);
  });
}

TEST_F(Norm, ANotANumberStaysInItsRow) {
  GuardedMatrix x(2, 20), y(2, 20);
  x.fill_normal(10);
  x.row(0)[19] = std::numeric_limits<float>::quiet_NaN();
  rms_norm(context_, x.matrix(), weight_.row(0), 0.0f, kEpsilon, y.matrix());
  EXPECT_TRUE(std::isnan(y.row(0)[0]));
  EXPECT_FALSE(std::isnan(y.row(1)[0]));
}

}  // namespace
}  // namespace halley
