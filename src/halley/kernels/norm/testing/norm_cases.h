// The shapes that norms are tested on.
#pragma once

#include <cstdint>
#include <vector>

namespace halley {

struct NormShape {
  int64_t num_rows, num_cols;  // M, K
};

/// Empty, single, and around one and four vectors of every width.
inline std::vector<NormShape> norm_test_cases() {
  return {{0, 8},  {1, 1},  {2, 3},  {3, 4},  {1, 5},  {4, 8},   {2, 9},     {3, 15},  {3, 16},
          {3, 17}, {2, 31}, {2, 33}, {2, 63}, {2, 65}, {1, 100}, {33, 2048}, {2, 5001}};
}

}  // namespace halley
