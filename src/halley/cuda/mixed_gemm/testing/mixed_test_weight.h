// For tests: random weights of all kinds, and the numbers that they stand for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/float16.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/mixed_gemm/mixed_tile.h"

namespace halley::cuda {

inline constexpr MixedKind kMixedKinds[] = {MixedKind::kU4S8,  MixedKind::kU4GroupS8,
                                            MixedKind::kU4F16, MixedKind::kU4Bf16,
                                            MixedKind::kU8F16, MixedKind::kU8Bf16};
/// Of 4 bits, and of 8.
inline constexpr MixedKind kMixedU4Kinds[] = {MixedKind::kU4S8, MixedKind::kU4GroupS8,
                                              MixedKind::kU4F16, MixedKind::kU4Bf16};
inline constexpr MixedKind kMixedU8Kinds[] = {MixedKind::kU8F16, MixedKind::kU8Bf16};

/// Of kU4S8 all inputs are one group.
inline int64_t test_group_size(MixedKind kind, int64_t K, int64_t group_size) {
  return kind == MixedKind::kU4S8 ? K : group_size;
}

/// Of what a weight of this kind is multiplied with.
inline DType test_input_dtype(MixedKind kind) {
  if (is_s8(kind)) return DType::kI8;
  return is_f16(kind) ? DType::kF16 : DType::kBf16;
}

/// Whether a tile rounds weights of 16-bit kinds to the activations' type: it does not where it
/// scales accumulators by groups. `group_size` as stored.
constexpr bool are_weights_rounded(const MixedTile& tile, int group_size) {
  return tile.tokens > (group_size == kChunkInputs ? 48 : 16);
}

/// The quantized values [N, K] of a packed weight.
inline std::vector<uint8_t> unpack_mixed(const MixedPacked& packed) {
  const int64_t chunks_a_row = (packed.K + kChunkInputs - 1) / kChunkInputs;
  std::vector<uint8_t> codes;
  codes.reserve(static_cast<size_t>(packed.N * packed.K));
  for (int64_t n = 0; n < packed.N; ++n) {
    for (int64_t k = 0; k < packed.K; ++k) {
      const int64_t chunk = n / kChunkOutputs * chunks_a_row + k / kChunkInputs;
      const NibblePlace place = nibble_place(packed.kind, static_cast<int>(n % kChunkOutputs),
                                             static_cast<int>(k % kChunkInputs));
      const auto at = static_cast<size_t>(chunk * chunk_bytes(packed.kind, packed.group_size));
      const int byte = packed.chunks[at + static_cast<size_t>(place.byte)];
      codes.push_back(static_cast<uint8_t>((byte >> place.shift & code_max(packed.kind)) ^
                                           nibble_flip(packed.kind)));
    }
  }
  return codes;
}

/// A random weight and the arrays behind it.
struct RandomWeight {
  /// The same everywhere.
  struct Codes {
    int code = 0, zero = 0, group_scale = 0;
  };

  RandomWeight(MixedKind kind, int64_t N, int64_t K, int64_t group_size)
      : groups((K + group_size - 1) / group_size) {
    std::mt19937 random(static_cast<uint32_t>(N * 131 + K));
    const auto pick = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const auto outputs = static_cast<size_t>(N);
    const size_t entries = outputs * static_cast<size_t>(groups);
    for (size_t i = 0; i < outputs * static_cast<size_t>(K); ++i) {
      codes.push_back(static_cast<uint8_t>(pick(0, code_max(kind))));
    }
    for (size_t i = 0; i < (is_s8(kind) ? outputs : entries); ++i) {
      scales.push_back(static_cast<float>(pick(-300, 300)) / 1024);
    }
    for (size_t i = 0; i < entries; ++i) {
      if (kind == MixedKind::kU4GroupS8) {
        group_scales.push_back(static_cast<uint8_t>(pick(0, 16)));
        const int scale = group_scales.back();
        // Codes 0 to 15 all fit in s8: (15 - zero) * scale <= 127 and zero * scale <= 128.
        const int least = scale == 0 ? 0 : std::max(0, 15 - 127 / scale);
        zeros.push_back(
            static_cast<float>(pick(least, scale == 0 ? 15 : std::min(15, 128 / scale))));
      } else {
        zeros.push_back(static_cast<float>(pick(0, zero_max(kind))));
      }
    }
    source = {.kind = kind,
              .N = N,
              .K = K,
              .group_size = group_size,
              .codes = codes,
              .scales = scales,
              .zeros = zeros,
              .group_scales = group_scales};
  }

  /// With scales of 1.
  void set_all(const Codes& all) {
    std::fill(codes.begin(), codes.end(), static_cast<uint8_t>(all.code));
    std::fill(zeros.begin(), zeros.end(), static_cast<float>(all.zero));
    std::fill(group_scales.begin(), group_scales.end(), static_cast<uint8_t>(all.group_scale));
    std::fill(scales.begin(), scales.end(), 1.0f);
  }

  /// The number that the weight has: of s8 without the outputs' scale, of kU4S8 less 8 and not
  /// the zero. Of 16 bits exact.
  float number(int64_t n, int64_t k) const {
    const int code = codes[static_cast<size_t>(n * source.K + k)];
    if (source.kind == MixedKind::kU4S8) return static_cast<float>(code - 8);
    const auto entry = static_cast<size_t>(n * groups + k / source.group_size);
    const float difference = static_cast<float>(code) - zeros[entry];
    if (source.kind == MixedKind::kU4GroupS8) {
      return static_cast<float>(group_scales[entry]) * difference;
    }
    const float scale = is_f16(source.kind) ? f16_to_f32(f32_to_f16(scales[entry]))
                                            : bf16_to_f32(f32_to_bf16(scales[entry]));
    return scale * difference;
  }

  /// What the tensor cores must see: of kU4S8 16 times the number, of 16 bits rounded.
  float operand(int64_t n, int64_t k) const {
    const float exact = number(n, k);
    if (source.kind == MixedKind::kU4S8) return 16 * exact;
    if (is_s8(source.kind)) return exact;
    return is_f16(source.kind) ? f16_to_f32(f32_to_f16(exact)) : bf16_to_f32(f32_to_bf16(exact));
  }

  /// number() of all, [N, K]; of 16 bits operand() where they `are_rounded`.
  std::vector<float> numbers(bool are_rounded) const {
    const bool are_operands = are_rounded && !is_s8(source.kind);
    std::vector<float> values;
    for (int64_t n = 0; n < source.N; ++n) {
      for (int64_t k = 0; k < source.K; ++k) {
        values.push_back(are_operands ? operand(n, k) : number(n, k));
      }
    }
    return values;
  }
  /// What is taken from each number of an output, [N]; empty where that is nothing.
  std::vector<float> offsets() const {
    std::vector<float> values;
    if (source.kind != MixedKind::kU4S8 || source.zeros.empty()) return values;
    for (const float zero : zeros) values.push_back(zero - 8);
    return values;
  }

  int64_t groups;
  std::vector<uint8_t> codes, group_scales;
  std::vector<float> scales, zeros;
  MixedSource source;
};

/// Weights of kU4GroupS8 whose numbers reach the ends of s8: nothing is carried between bytes.
struct EndOfS8 {
  RandomWeight::Codes codes;
  int number;
};
inline constexpr EndOfS8 kEndsOfS8[] = {{{.code = 0, .zero = 8, .group_scale = 16}, -128},
                                        {{.code = 14, .zero = 7, .group_scale = 17}, 119},
                                        {{.code = 15, .zero = 0, .group_scale = 8}, 120},
                                        {{.code = 2, .zero = 1, .group_scale = 127}, 127},
                                        {{.code = 0, .zero = 0, .group_scale = 255}, 0},
                                        {{.code = 15, .zero = 16, .group_scale = 0}, 0}};

}  // namespace halley::cuda
