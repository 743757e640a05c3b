// Weights of 4 and 8 bits on the host: from plain codes to the order of mixed_layout.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halley/cuda/mixed_gemm/mixed_layout.h"

namespace halley::cuda {

/// A weight W [N, K] as plain arrays. num_groups is ceil(K / group_size), the last group may be
/// shorter.
struct MixedSource {
  MixedKind kind = MixedKind::kU4S8;
  int64_t N = 0, K = 0;
  /// Inputs that share parameters; kU4S8: K.
  int64_t group_size = 0;
  std::span<const uint8_t> codes = {};  // [N, K], 0 to code_max()
  /// kU4S8 and kU4GroupS8: [N]; others [N, num_groups], rounded to f16 or bf16.
  std::span<const float> scales = {};
  /// What codes are less: [N, num_groups], integers from 0 to zero_max() but for kU4S8. Empty: all
  /// 8, or 128 of 8 bits.
  std::span<const float> zeros = {};
  std::span<const uint8_t> group_scales = {};  // kU4GroupS8: [N, num_groups]
};

/// On the host, as the GPU reads it.
struct MixedPacked {
  MixedKind kind = MixedKind::kU4S8;
  int64_t N = 0, K = 0;
  int group_size = 128;  // as stored: 32, 64 or 128
  std::vector<uint8_t> chunks = {};
  /// [N]; a weight is scale * number - offset. Of s8; offsets empty where all are zero.
  std::vector<float> w_scales = {};
  std::vector<float> w_offsets = {};
};

/// Scales of kU8Bf16 are at most this, or not finite: its decoder multiplies them with 33023 in
/// f32.
inline constexpr float kU8Bf16ScaleMax = 0x1p111f;

/// Empty: pack_mixed() takes weights of this form. Otherwise why not.
std::string why_not_mixed(MixedKind kind, int64_t K, int64_t group_size);

/// Codes beyond N and K are zero. Throws UnsupportedError with why_not_mixed();
/// CheckpointError that names the output for a code above code_max(), for a scale that f16 has not
/// (kU8Bf16: above kU8Bf16ScaleMax), for a zero that is no integer of 0 to zero_max(), and where
/// kU4GroupS8's numbers do not fit in s8.
MixedPacked pack_mixed(const MixedSource& source);

/// The numbers [K] of output n that are multiplied: of s8 integers, which the output's scale and
/// offset make weights; of others the weights.
std::vector<float> unpack_mixed_row(const MixedPacked& packed, int64_t n);

}  // namespace halley::cuda
