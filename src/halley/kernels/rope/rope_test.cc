#include "halley/kernels/rope/rope.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "halley/kernels/rope/testing/rope_cases.h"
#include "halley/kernels/rope/testing/rope_reference.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

// cos and sin are within 1 ulp, and the sum has two terms of size up to 5.
constexpr double kRopeTolerance = 2e-6;

std::vector<float> frequencies(int64_t rotary_dim) {
  std::vector<float> result;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    result.push_back(static_cast<float>(
        std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(rotary_dim))));
  }
  return result;
}

TEST(Rope, AgreesWithTheReferenceOnEverySimdTarget) {
  ThreadPool pool(2);
  ExecContext context{pool};
  for_each_simd_target([&](const char* target) {
    for (const RopeCase& shape : rope_test_cases()) {
      const std::vector<float> inv_freq = frequencies(shape.rotary_dim);
      GuardedMatrix x(static_cast<int64_t>(shape.positions.size()),
                      shape.num_heads * shape.head_dim);
      x.fill_normal(3);
      GuardedMatrix expected = x, before = x;
      RopeAngles angles;
      compute_rope_angles(context, shape.positions, inv_freq, shape.factor, angles);
      apply_rope(context, angles, shape.num_heads, shape.head_dim, x.matrix());
      apply_rope_reference(shape.positions, inv_freq, shape.factor, shape.head_dim,
                           expected.matrix());
      EXPECT_TRUE(x.guards_are_intact()) << target;
      for (int64_t m = 0; m < x.num_rows(); ++m) {
        for (int64_t i = 0; i < x.num_cols(); ++i) {
          ASSERT_NEAR(x.row(m)[i], expected.row(m)[i], kRopeTolerance)
              << target << " row " << m << " column " << i;
          if (i % shape.head_dim >= shape.rotary_dim) {
            ASSERT_EQ(x.row(m)[i], before.row(m)[i]) << "not rotated, " << target;
          }
        }
      }
    }
  });
}

TEST(Rope, InterleavedTurnsNeighbouringColumns) {
  ThreadPool pool(2);
  ExecContext context{pool};
  for (const RopeCase& shape : rope_test_cases()) {
    const std::vector<float> inv_freq = frequencies(shape.rotary_dim);
    GuardedMatrix x(static_cast<int64_t>(shape.positions.size()), shape.num_heads * shape.head_dim);
    x.fill_normal(4);
    GuardedMatrix expected = x;
    RopeAngles angles;
    compute_rope_angles(context, shape.positions, inv_freq, shape.factor, angles);
    angles.is_interleaved = true;
    apply_rope(context, angles, shape.num_heads, shape.head_dim, x.matrix());
    apply_rope_reference(shape.positions, inv_freq, shape.factor, shape.head_dim, expected.matrix(),
                         /*is_interleaved=*/true);
    EXPECT_TRUE(x.guards_are_intact());
    for (int64_t m = 0; m < x.num_rows(); ++m) {
      for (int64_t i = 0; i < x.num_cols(); ++i) {
        ASSERT_NEAR(x.row(m)[i], expected.row(m)[i], kRopeTolerance)
            << "row " << m << " column " << i;
      }
    }
  }
}

TEST(Rope, AnglesAreAccurateUpToAMillion) {
  ThreadPool pool(2);
  ExecContext context{pool};
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < 1'000'000; p += 997) positions.push_back(p);
  const std::vector<float> inv_freq = {1.0f, 0.73f, 0.001f};
  RopeAngles angles;
  compute_rope_angles(context, positions, inv_freq, 1.0f, angles);
  for (size_t m = 0; m < positions.size(); ++m) {
    for (size_t i = 0; i < inv_freq.size(); ++i) {
      const float angle = static_cast<float>(positions[m]) * inv_freq[i];
      ASSERT_NEAR(angles.cos[m * 3 + i], std::cos(static_cast<double>(angle)), 1e-7) << angle;
      ASSERT_NEAR(angles.sin[m * 3 + i], std::sin(static_cast<double>(angle)), 1e-7) << angle;
    }
  }
}

TEST(Rope, ARowsBitsDoNotDependOnTheBatch) {
  ThreadPool pool(3);
  ExecContext context{pool};
  std::vector<int32_t> positions;
  for (int32_t m = 0; m < 300; ++m) positions.push_back(m * 7 % 291);
  const std::vector<float> inv_freq = frequencies(64);
  GuardedMatrix x(300, 3 * 64);
  x.fill_normal(5);
  GuardedMatrix together = x;
  RopeAngles angles;
  compute_rope_angles(context, positions, inv_freq, 1.0f, angles);
  apply_rope(context, angles, 3, 64, together.matrix());
  for (int64_t m = 0; m < 300; ++m) {
    compute_rope_angles(context, {&positions[static_cast<size_t>(m)], 1}, inv_freq, 1.0f, angles);
    apply_rope(context, angles, 3, 64, x.matrix().rows(m, m + 1));
    EXPECT_TRUE(x.row_equals(m, together.row(m))) << m;
  }
}

}  // namespace
}  // namespace halley
