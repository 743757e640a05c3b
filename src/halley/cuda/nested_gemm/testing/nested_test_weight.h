// For tests and timings: f16 weights split into planes in device memory.
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {

/// Both planes of a weight of f16 `bits` [N, K], and the weight.
class NestedTestWeight {
 public:
  NestedTestWeight(const CudaContext& context, const std::vector<uint16_t>& bits, int64_t N,
                   int64_t K)
      : stride_(round_up<int64_t>(K, kNestedInputs)),
        upper_(static_cast<size_t>(round_up<int64_t>(N, 16) * stride_), "an upper plane") {
    const DeviceBuffer lower(static_cast<size_t>(N * K), "a lower plane");
    // Whatever stands behind a row must not matter: 0x7F is NaN.
    std::vector<uint8_t> uppers(upper_.num_bytes(), 0x7F), lowers;
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < K; ++k) {
        const uint16_t number = bits[static_cast<size_t>(n * K + k)];
        HALLEY_CHECK(can_split_f16(number), n, k);
        const NestedFloat nested = split_f16(number);
        uppers[static_cast<size_t>(n * stride_ + k / kNestedInputs * kNestedInputs +
                                   lane_place(static_cast<int>(k % kNestedInputs)))] = nested.upper;
        lowers.push_back(nested.lower);
      }
    }
    copy(upper_, uppers);
    copy(lower, lowers);
    weight_ = NestedWeight(context, {upper_.data(), DType::kF8E4M3, N, K, stride_});
    pack_lower_rows(context, {lower.data(), DType::kU8, N, K, K}, 0, weight_);
    context.stream.synchronize();
  }

  const NestedWeight& weight() const { return weight_; }

 private:
  static void copy(const DeviceBuffer& to, const std::vector<uint8_t>& bytes) {
    check_cuda(cudaMemcpy(to.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
               "copy of a plane");
    check_cuda(cudaDeviceSynchronize(), "copy of a plane");
  }

  int64_t stride_;
  DeviceBuffer upper_;
  NestedWeight weight_;
};

}  // namespace halley::cuda
