// Codes of a W4Ax weight on the host: from plain bytes to the order of w4ax_layout.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

namespace halley::cuda {

/// W4axWeight::codes of codes [N, K], each 0 to 15; codes beyond N and K stand for zero.
inline std::vector<uint8_t> pack_w4ax(std::span<const uint8_t> codes, int64_t N, int64_t K) {
  const auto nibble = [&](int64_t n, int64_t k) -> uint32_t {
    if (n >= N || k >= K) return 0;
    return (codes[static_cast<size_t>(n * K + k)] ^ 8u) & 15u;
  };
  std::vector<uint8_t> chunks;
  for (int64_t n = 0; n < N; n += kTileOutputs) {
    for (int64_t k = 0; k < K; k += kW4axInputs) {
      for (int byte = 0; byte < kW4axChunkBytes; ++byte) {
        const W4axBytePlace place = w4ax_byte_place(byte);
        const int64_t output = n + place.output, input = k + place.input;
        chunks.push_back(
            static_cast<uint8_t>(nibble(output, input) | nibble(output + 8, input) << 4));
      }
    }
  }
  return chunks;
}

}  // namespace halley::cuda
