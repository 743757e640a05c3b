// The shapes that activations are tested on.
#pragma once

#include <cstdint>
#include <vector>

namespace halley {

struct MlpShape {
  int64_t num_rows, num_cols;  // M, F
};

/// Empty, single, and around the widths of vectors.
inline std::vector<MlpShape> activation_test_cases() {
  return {{0, 8}, {1, 1},  {2, 3},  {3, 4},  {1, 5},   {4, 7},   {5, 8},
          {2, 9}, {3, 15}, {3, 16}, {3, 17}, {2, 100}, {40, 515}};
}

}  // namespace halley
