// For tests: codes and scales of the host as a weight of W4Ax products.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"
#include "halley/cuda/w4ax_gemm/w4ax_pack.h"

namespace halley::cuda {

/// Codes [N, K] and scales [N, blocks] of the host into a weight of [N, K]. Waits.
inline void put_w4ax(const CudaContext& context, std::span<const uint8_t> codes,
                     std::span<const float> scales, const W4axWeight& weight) {
  const std::vector<uint8_t> chunks = pack_w4ax(codes, weight.N, weight.K);
  HALLEY_CHECK(chunks.size() == weight.codes.num_bytes(), chunks.size());
  std::vector<float> placed(weight.scales.num_bytes() / sizeof(float));
  for (int64_t n = 0; n < weight.N; ++n) {
    for (int64_t b = 0; b < weight.num_blocks(); ++b) {
      placed[static_cast<size_t>(b * weight.scales_pitch() + n)] =
          scales[static_cast<size_t>(n * weight.num_blocks() + b)];
    }
  }
  context.stream.synchronize();
  check_cuda(cudaMemcpy(weight.codes.data(), chunks.data(), chunks.size(), cudaMemcpyHostToDevice),
             "copy of codes");
  check_cuda(cudaMemcpy(weight.scales.data(), placed.data(), placed.size() * sizeof(float),
                        cudaMemcpyHostToDevice),
             "copy of scales");
  // Other streams do not wait for copies beside them.
  check_cuda(cudaDeviceSynchronize(), "copy of a weight");
}

}  // namespace halley::cuda
