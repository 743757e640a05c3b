// The weight layouts that GEMM kernels read, and a weight in one of them. Kernels know layouts, not
// checkpoint formats.
#pragma once

#include <cstdint>
#include <ostream>

#include "halley/core/host_buffer.h"

namespace halley {

/// How the elements of W [N, K] lie in memory. The words that describe each layout are the contract
/// between whoever packs and whoever multiplies.
enum class PackedLayout : uint8_t {
  /// [N, K], k fastest, dense.
  kF32RowMajor,
  /// Panels of kPanelRows output features: [ceil(N/32), K, 32] elements, n fastest inside a panel,
  /// so that one k of a panel is one or a few vectors. Features beyond N are zero.
  kF32Panel,
  /// As kF32Panel with f16 elements.
  kF16Panel,
  /// bf16 in pairs of k: [ceil(N/32), ceil(K/2), 32, 2], the pair fastest, which is what a
  /// bf16 dot-product instruction reads. Features beyond N and k beyond K are zero.
  kBf16PairPanel,
};

/// Output features of one panel.
inline constexpr int64_t kPanelRows = 32;

const char* name_of(PackedLayout layout);
inline std::ostream& operator<<(std::ostream& out, PackedLayout layout) {
  return out << name_of(layout);
}

/// One weight matrix W [N, K] = [out_features, in_features] in a kernel's layout. Move-only.
struct PackedWeight {
  PackedLayout layout = PackedLayout::kF16Panel;
  int64_t N = 0;
  int64_t K = 0;
  HostBuffer data;
};

/// Bytes that a weight of this layout and size takes.
size_t packed_bytes(PackedLayout layout, int64_t N, int64_t K);

}  // namespace halley
