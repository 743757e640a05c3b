// Reads the tensors of one part in QServe's layout: 4-bit codes in tiles of 32 x 32, with one or
// two levels of scales.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// Inputs that share a scale of the second level.
inline constexpr int64_t kTiledGroup = 128;
/// Outputs and inputs of a tile of codes.
inline constexpr int64_t kCodeTile = 32;

/// The byte of qweight [N, K/2] that holds the code of output n and input k, in its low half where
/// n % 32 < 16.
constexpr int64_t tile_byte_of(int64_t n, int64_t k, int64_t K) {
  const int64_t tile = n / kCodeTile * (K / kCodeTile) + k / kCodeTile;
  return tile * (kCodeTile * kCodeTile / 2) + n % 8 * 64 + k / 4 % 4 * 16 + k / 16 % 2 * 8 +
         n / 8 % 2 * 4 + k % 4;
}

/// The column of output n in s2_scales and s2_zeros: each 32 outputs are stored as 0, 8, 16, 24, 1,
/// 9, ...
constexpr int64_t permuted_output(int64_t n) {
  return n / kCodeTile * kCodeTile + n % 8 * 4 + n % kCodeTile / 8;
}

/// Opens <part>.qweight, s1_scales and s1_szeros; per-group s1_scales, s2_scales and s2_zeros.
/// Throws CheckpointError where one is missing or of another type or shape; UnsupportedError where
/// the size is not one of whole tiles; check_data() where a scale is not finite or zero, or not
/// positive on the second level. Throws there too where code * s2_scale
/// + s2_zero leaves 8 bits.
std::unique_ptr<StoredWeight> open_tiled_weight(const TensorSource& source,
                                                const LinearSpec::Part& part, int64_t in_features,
                                                bool is_grouped);

/// The tensors that open_tiled_weight() reads.
std::vector<TensorInfo> expected_tiled_tensors(const LinearSpec::Part& part, int64_t in_features,
                                               bool is_grouped);

}  // namespace halley
