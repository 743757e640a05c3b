// The shapes that the rotary embedding is tested on.
#pragma once

#include <cstdint>
#include <vector>

namespace halley {

struct RopeCase {
  int64_t num_heads, head_dim, rotary_dim;
  float factor;
  std::vector<int32_t> positions;
};

inline std::vector<RopeCase> rope_test_cases() {
  return {
      {1, 2, 2, 1.0f, {1}},           {2, 16, 16, 1.0f, {}},
      {2, 16, 16, 1.0f, {0, 1, 5}},   {3, 64, 64, 1.0f, {100, 3, 2047, 131071, 999999}},
      {3, 80, 32, 1.0f, {7, 8}},                                   // partial
      {2, 96, 96, 1.19f, {17, 4095}}, {1, 30, 22, 0.5f, {9, 10}},  // tails
      {4, 128, 128, 1.0f, {5000}},
  };
}

}  // namespace halley
