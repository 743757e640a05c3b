// The GEMM shapes that are tested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <vector>

#include "halley/core/packed_weight.h"

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

/// A GEMM with a weight in a quad layout.
struct QuadCase {
  GemmCase shape;
  PackedLayout layout = PackedLayout::kU4Quad;
  int64_t group_size = 1;
  ZeroKind zero_kind = ZeroKind::kPoint;
  bool has_input_perm = false;
  ActivationQuant activation = ActivationQuant::kNone;
};

inline std::ostream& operator<<(std::ostream& out, const QuadCase& quad) {
  return out << quad.layout << " " << quad.shape << " group " << quad.group_size
             << (quad.zero_kind == ZeroKind::kPoint ? " point" : " offset")
             << (quad.has_input_perm ? " ordered" : "") << " activation " << quad.activation;
}

inline constexpr PackedLayout kQuadLayouts[] = {PackedLayout::kU8Quad, PackedLayout::kF8E4M3Quad,
                                                PackedLayout::kU4Quad, PackedLayout::kU2Quad,
                                                PackedLayout::kU3Quad, PackedLayout::kE2m1Quad};

/// The activation quantizations that checkpoints may ask for with this layout.
inline std::vector<ActivationQuant> activations_of(PackedLayout layout) {
  switch (layout) {
    case PackedLayout::kU8Quad:
      return {ActivationQuant::kNone, ActivationQuant::kS8Token, ActivationQuant::kS8Static};
    case PackedLayout::kU4Quad:
      return {ActivationQuant::kNone, ActivationQuant::kS8Token, ActivationQuant::kS8Static,
              ActivationQuant::kS4S8Block128};
    case PackedLayout::kF8E4M3Quad:
      return {ActivationQuant::kNone, ActivationQuant::kE4m3Token, ActivationQuant::kE4m3Group128,
              ActivationQuant::kE4m3Static};
    default:
      return {ActivationQuant::kNone};
  }
}

/// Groups that cut quads, units of 32 and blocks of 128 and 256 along K in every way, with sizes on
/// both sides of these boundaries, for M = 1, small and large M.
inline std::vector<QuadCase> quad_test_cases() {
  std::vector<QuadCase> cases;
  constexpr int64_t kWholeRow = -1;
  int64_t index = 0;
  for (const PackedLayout layout : kQuadLayouts) {
    const std::vector<ActivationQuant> activations = activations_of(layout);
    const auto add = [&](const GemmCase& shape, int64_t group_size) {
      const ActivationQuant activation =
          activations[static_cast<size_t>(index) % activations.size()];
      const ZeroKind zero_kind = index / 2 % 2 == 0 ? ZeroKind::kPoint : ZeroKind::kOffset;
      cases.push_back({shape, layout, group_size == kWholeRow ? shape.K : group_size, zero_kind,
                       /*has_input_perm=*/index % 3 == 0, activation});
      ++index;
    };
    for (const int64_t group_size : {1, 3, 5, 16, 32, 64, 100, 128, -1}) {
      add({1, 33, 133, true}, group_size);
      add({3, 32, 131, false}, group_size);
      add({30, 31, 259, true}, group_size);
    }
    for (const int64_t K : {1, 2, 3, 4, 5, 31, 32, 33, 127, 128, 129, 256, 257}) {
      add({1, 7, K, K % 2 == 0}, kWholeRow);
      add({2, 40, K, K % 2 == 1}, std::min<int64_t>(K, 32));
    }
    for (const int64_t M : {0, 4, 6, 7, 12, 13, 14, 28, 29}) add({M, 65, 64, true}, 32);
    add({200, 36, 260, true}, 128);
    add({1, 513, 64, false}, 64);
    add({2, 0, 32, false}, 32);
  }
  return cases;
}

}  // namespace halley
