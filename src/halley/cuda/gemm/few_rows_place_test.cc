// The places of products of a few rows, by a model of mma.sync on the CPU: every input of every
// output is taken once, and sums lie where they are looked for.
#include "halley/cuda/gemm/few_rows_place.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

using Lanes = std::array<std::array<int8_t, 16>, 32>;  // the 16 bytes of each lane

/// mma.sync.m16n8k32 of s8, with the places that the PTX manual names (fragments of m16n8k32).
/// `half` picks the words that its first and second half of inputs come from.
void multiply(const Lanes& upper, const Lanes& lower, const Lanes& x, int half,
              std::array<std::array<int, 4>, 32>* sums) {
  int a[16][32], b[32][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, thread = lane % 4;
    for (int i = 0; i < 16; ++i) {  // a0 ... a15 in registers of four
      const int word = i / 4;
      const Lanes& from = word % 2 == 0 ? upper : lower;
      const int byte = (2 * half + word / 2) * 4 + i % 4;
      const int row = word % 2 == 0 ? group : group + 8;
      const int column = thread * 4 + i % 4 + (i >= 8 ? 16 : 0);
      a[row][column] = from[static_cast<size_t>(lane)][static_cast<size_t>(byte)];
    }
    for (int i = 0; i < 8; ++i) {
      const int byte = (2 * half + i / 4) * 4 + i % 4;
      const int row = thread * 4 + i % 4 + (i >= 4 ? 16 : 0);
      b[row][group] = x[static_cast<size_t>(lane)][static_cast<size_t>(byte)];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? lane / 4 : lane / 4 + 8, column = lane % 4 * 2 + i % 2;
      int& sum = (*sums)[static_cast<size_t>(lane)][static_cast<size_t>(i)];
      for (int k = 0; k < 32; ++k) sum += a[row][k] * b[k][column];
    }
  }
}

/// 16 bytes from `begin`, zeros behind the row.
Lanes load(const std::vector<int8_t>& matrix, int row_bytes, int fragment, int unit, int warp) {
  Lanes lanes = {};
  for (int lane = 0; lane < 32; ++lane) {
    const int begin = few_rows_begin(unit, warp, lane);
    if (begin >= row_bytes) continue;
    const int row = few_rows_fragment_row(fragment, lane);
    std::memcpy(lanes[static_cast<size_t>(lane)].data(), matrix.data() + row * row_bytes + begin,
                16);
  }
  return lanes;
}

TEST(FewRowsPlaces, GiveTheProductOf16OutputsAnd8Rows) {
  std::mt19937 random(1);
  for (const int row_bytes : {16, 64, 80, 128, 144, 1024, 1040, 2000, 8192}) {
    std::vector<int8_t> w(static_cast<size_t>(16 * row_bytes)),
        x(static_cast<size_t>(8 * row_bytes));
    for (int8_t& code : w) code = static_cast<int8_t>(random());
    for (int8_t& code : x) code = static_cast<int8_t>(random());
    std::vector<int> y(16 * 8);
    int num_units = 0;
    for (int warp = 0; warp < kFewRowsWarps; ++warp) {
      std::array<std::array<int, 4>, 32> sums = {};
      for (int unit = 0; unit < few_rows_units(row_bytes, warp); ++unit, ++num_units) {
        const Lanes upper = load(w, row_bytes, 0, unit, warp);
        const Lanes lower = load(w, row_bytes, 1, unit, warp);
        const Lanes inputs = load(x, row_bytes, 0, unit, warp);
        multiply(upper, lower, inputs, 0, &sums);
        multiply(upper, lower, inputs, 1, &sums);
      }
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const int output = few_rows_sum_output(i, lane), m = few_rows_sum_row(i, lane);
          y[static_cast<size_t>(m * 16 + output)] +=
              sums[static_cast<size_t>(lane)][static_cast<size_t>(i)];
        }
      }
    }
    EXPECT_EQ(num_units, (row_bytes + 127) / 128 * 2) << row_bytes;
    for (int m = 0; m < 8; ++m) {
      for (int n = 0; n < 16; ++n) {
        int right = 0;
        for (int k = 0; k < row_bytes; ++k) {
          right +=
              w[static_cast<size_t>(n * row_bytes + k)] * x[static_cast<size_t>(m * row_bytes + k)];
        }
        ASSERT_EQ(y[static_cast<size_t>(m * 16 + n)], right) << row_bytes << ": " << m << " " << n;
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
