// For tests: random 4-bit weights of all kinds, and the numbers that they stand for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "halley/core/float16.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"

namespace halley::cuda {

/// A random weight and the arrays behind it.
struct RandomWeight {
  RandomWeight(MixedKind kind, int64_t N, int64_t K, int64_t group_size)
      : groups((K + group_size - 1) / group_size) {
    std::mt19937 random(static_cast<uint32_t>(N * 131 + K));
    const auto pick = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const auto outputs = static_cast<size_t>(N);
    const size_t entries = outputs * static_cast<size_t>(groups);
    for (size_t i = 0; i < outputs * static_cast<size_t>(K); ++i) {
      codes.push_back(static_cast<uint8_t>(pick(0, 15)));
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
        zeros.push_back(static_cast<float>(pick(0, 16)));
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
    const float scale = source.kind == MixedKind::kU4F16 ? f16_to_f32(f32_to_f16(scales[entry]))
                                                         : bf16_to_f32(f32_to_bf16(scales[entry]));
    return scale * difference;
  }

  /// What the tensor cores must see: of kU4S8 16 times the number, of 16 bits rounded.
  float operand(int64_t n, int64_t k) const {
    const float exact = number(n, k);
    if (source.kind == MixedKind::kU4S8) return 16 * exact;
    if (source.kind == MixedKind::kU4F16) return f16_to_f32(f32_to_f16(exact));
    return source.kind == MixedKind::kU4Bf16 ? bf16_to_f32(f32_to_bf16(exact)) : exact;
  }

  int64_t groups;
  std::vector<uint8_t> codes, group_scales;
  std::vector<float> scales, zeros;
  MixedSource source;
};

}  // namespace halley::cuda
