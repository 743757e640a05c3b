// The shapes that attention is tested on.
#pragma once

#include <cstdint>
#include <vector>

#include "halley/kernels/kv/kv_dtype.h"

namespace halley {

struct AttentionCase {
  const char* name;
  int64_t num_heads, num_kv_heads, head_dim, page_tokens;
  KvDType dtype;
  int64_t window;
  float soft_cap;
  struct Sequence {
    int64_t num_past_tokens, num_new_tokens;
  };
  std::vector<Sequence> sequences;
};

/// Small cases: every head size and page size, the edges of tiles (32) and splits (512).
inline std::vector<AttentionCase> attention_test_cases() {
  constexpr KvDType kF32 = KvDType::kF32, kF16 = KvDType::kF16, kBf16 = KvDType::kBf16;
  return {
      {"one token", 1, 1, 16, 1, kF32, 0, 0, {{0, 1}}},
      {"empty batch", 2, 1, 16, 16, kF16, 0, 0, {}},
      {"page of 1", 2, 1, 16, 1, kF16, 0, 0, {{0, 7}, {31, 1}}},
      {"page of 3", 4, 2, 32, 3, kBf16, 0, 0, {{0, 33}, {64, 2}}},
      {"llama heads", 8, 1, 64, 16, kF16, 0, 0, {{0, 31}, {0, 32}, {0, 33}, {95, 1}, {40, 9}}},
      {"head of 80", 3, 3, 80, 16, kBf16, 0, 0, {{0, 40}, {20, 1}}},
      {"head of 96", 4, 4, 96, 64, kF32, 0, 0, {{5, 70}}},
      {"head of 128", 7, 1, 128, 16, kF16, 0, 0, {{0, 20}, {100, 1}}},
      {"head of 256", 2, 1, 256, 64, kBf16, 0, 50.0f, {{0, 36}, {70, 1}}},
      {"head of 17", 2, 2, 17, 5, kF32, 0, 0, {{0, 35}}},
      {"head of 1", 3, 1, 1, 7, KvDType::kInt4, 0, 0, {{0, 40}}},
      {"group above a unit's rows", 70, 1, 16, 16, kF16, 0, 0, {{30, 3}}},
      {"split edges", 2, 1, 16, 16, kF16, 0, 0, {{511, 1}, {511, 2}, {512, 1}, {1000, 30}}},
      {"lengths 1 and 1000", 2, 1, 32, 16, kF16, 0, 0, {{0, 1}, {999, 1}, {0, 1}}},
      {"window of 1", 2, 1, 16, 16, kF32, 1, 0, {{0, 40}, {33, 1}}},
      {"window of 32", 2, 1, 32, 3, kF16, 32, 0, {{0, 100}, {63, 1}, {64, 1}}},
      {"window across splits", 4, 2, 16, 16, kBf16, 300, 0, {{500, 40}, {700, 1}, {1300, 9}}},
      {"window above the context", 2, 2, 32, 64, kF16, 5000, 0, {{10, 50}}},
      {"soft cap", 4, 2, 64, 16, kF16, 0, 2.0f, {{0, 20}, {50, 1}}},
      {"soft cap and window", 4, 2, 32, 16, kBf16, 20, 5.0f, {{0, 60}, {90, 1}}},
  };
}

}  // namespace halley
