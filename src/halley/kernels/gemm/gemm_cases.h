// The GEMM shapes that are tested and timed.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

namespace halley {

struct GemmCase {
  int64_t M, N, K;
  bool has_bias = false;
};

inline std::ostream& operator<<(std::ostream& out, const GemmCase& shape) {
  return out << "M" << shape.M << "_N" << shape.N << "_K" << shape.K
             << (shape.has_bias ? "_bias" : "");
}

/// Sizes around every boundary: panels of 32 features, tiles of 4 to 16 rows, direct and blocked
/// kernels, blocks of 256 and 384 along K, blocks of 192 rows, and nothing at all.
inline std::vector<GemmCase> gemm_test_cases() {
  std::vector<GemmCase> cases;
  for (const int64_t M : {0, 1, 2, 7, 8, 33}) {
    for (const int64_t size : {1, 31, 32, 33, 100}) {
      cases.push_back({M, size, 64, size % 2 == 1});
      cases.push_back({M, 40, size, size % 2 == 0});
    }
  }
  for (const int64_t M : {1, 8, 33}) {
    cases.push_back({M, 4097, 33, true});
    cases.push_back({M, 33, 4097, true});
  }
  for (const int64_t M : {3, 4, 5, 6, 9, 12, 13, 14, 15, 16, 17, 28, 29, 32, 35, 49})
    cases.push_back({M, 64, 513, true});
  cases.push_back({193, 130, 400});
  cases.push_back({512, 96, 257, true});
  cases.push_back({5, 0, 32});
  cases.push_back({5, 32, 0});
  cases.push_back({20, 33, 0, true});
  return cases;
}

/// The linear layers of the built-in shape llama-1b: one layer's and the output.
inline std::vector<GemmCase> gemm_bench_cases(int64_t M) {
  return {{M, 2560, 2048}, {M, 2048, 2048}, {M, 11264, 2048}, {M, 2048, 5632}, {M, 8192, 2048}};
}

}  // namespace halley
