// For tests: a matrix whose rows lie apart, filled with NaN, with guard values around and between
// the rows that an operation must leave alone.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "halley/core/matrix.h"

namespace halley {

/// [num_rows, num_cols] f32, rows num_cols + row_gap apart.
class GuardedMatrix {
 public:
  GuardedMatrix(int64_t num_rows, int64_t num_cols, int64_t row_gap = 5)
      : num_rows_(num_rows), num_cols_(num_cols), row_stride_(num_cols + row_gap) {
    data_.assign(static_cast<size_t>(2 * kGuard + num_rows * row_stride_), kGuardValue);
    for (int64_t m = 0; m < num_rows; ++m) {
      for (int64_t i = 0; i < num_cols; ++i) {
        row(m)[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }

  Matrix matrix() {
    return {reinterpret_cast<std::byte*>(row(0)), DType::kF32, num_rows_, num_cols_, row_stride_};
  }
  float* row(int64_t m) { return data_.data() + kGuard + m * row_stride_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t num_cols() const { return num_cols_; }

  void fill_normal(uint32_t seed, float deviation = 1.0f, float mean = 0.0f) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution(mean, deviation);
    for (int64_t m = 0; m < num_rows_; ++m) {
      for (int64_t i = 0; i < num_cols_; ++i) row(m)[i] = distribution(random);
    }
  }

  bool guards_are_intact() {
    GuardedMatrix blank = *this;
    for (int64_t m = 0; m < num_rows_; ++m) {
      for (int64_t i = 0; i < num_cols_; ++i) blank.row(m)[i] = kGuardValue;
    }
    for (const float value : blank.data_) {
      if (value != kGuardValue) return false;
    }
    return true;
  }

  /// Whether row m has the same bits as a row of another matrix.
  bool row_equals(int64_t m, const float* other) {
    return std::memcmp(row(m), other, static_cast<size_t>(num_cols_) * sizeof(float)) == 0;
  }

 private:
  static constexpr int64_t kGuard = 32;
  static constexpr float kGuardValue = -12345.5f;

  int64_t num_rows_, num_cols_, row_stride_;
  std::vector<float> data_;
};

}  // namespace halley
