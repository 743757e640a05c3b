// Times of products of a few rows, by all plans, beside cuBLASLt's of f16 weights.
#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

constexpr int64_t kRowsMax = 64;

void fill_random(std::byte* device, size_t num_bytes) {
  std::vector<uint32_t> pattern(size_t{1} << 20);
  std::mt19937 random(3);
  // As f16: from 2^-3 to 1.
  for (uint32_t& word : pattern)
    word = (static_cast<uint32_t>(random()) & 0x8BFF8BFFu) | 0x30003000u;
  const size_t pattern_bytes = pattern.size() * 4;
  for (size_t begin = 0; begin < num_bytes; begin += pattern_bytes) {
    check_cuda(cudaMemcpy(device + begin, pattern.data(),
                          std::min(pattern_bytes, num_bytes - begin), cudaMemcpyHostToDevice),
               "copy of random numbers");
  }
}

class TimeGemv : public GpuTest {
 protected:
  void time_lt(int64_t N, int64_t K) {
    const CudaGemmProblem problem = {.dtype = DType::kF16, .y_dtype = DType::kF16, .N = N, .K = K};
    const CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, &lt_);
    const auto weight_bytes = static_cast<size_t>(N * K * 2);
    const size_t copies = copies_of(weight_bytes);
    const DeviceBuffer w(copies * weight_bytes, "weights");
    fill_random(w.data(), w.num_bytes());
    for (const int64_t M : {1, 8, 16, 32, 64}) {
      const double time = time_products(context_, copies, [&](size_t copy) {
        choice.kernel->launch(lt_, context_, problem,
                              {.x = {x_.data(), DType::kF16, M, K, K},
                               .w = {w.data() + copy * weight_bytes, DType::kF16, N, K, K}},
                              {y_.data(), DType::kF16, M, N, N});
      });
      std::cout << "time " << N << "x" << K << " f16 " << choice.kernel->name << " M " << M << ": "
                << time << " us\n";
    }
  }

  void time_gemv(const GemvShape& shape, DType x_dtype, bool has_zeros) {
    const auto count = static_cast<size_t>(shape.N * shape.num_groups());
    const std::vector<float> scales(count, 0.01f);
    std::vector<float> zeros(count, static_cast<float>(1 << shape.bits) / 2);
    if (has_zeros) zeros[0] = 0;
    std::vector<GemvWeight> weights;
    const size_t copies = copies_of(shape.code_bytes());
    for (size_t i = 0; i < copies; ++i) {
      weights.emplace_back(context_, shape, GemvParams{.scales = scales, .zeros = zeros});
      fill_random(weights.back().codes.data(), weights.back().codes.num_bytes());
    }
    check_cuda(cudaDeviceSynchronize(), "copies of random numbers");
    const double floor = static_cast<double>(weights[0].num_bytes()) / 4.66e6;
    const GemvPlan chosen = plan_gemv(shape, device_.num_multiprocessors);
    for (const int64_t M : {1, 2}) {
      const GemvDigitPlan digits =
          plan_gemv_digits(shape, M,
                           {.num_multiprocessors = device_.num_multiprocessors,
                            .shared_bytes_max = static_cast<int>(device_.shared_bytes_max)});
      if (digits.blocks == 0) continue;
      const double time = time_products(context_, copies, [&](size_t copy) {
        gemv_by_digits(context_, weights[copy], {.x = {x_.data(), x_dtype, M, shape.K, shape.K}},
                       digits, {y_.data(), DType::kF16, M, shape.N, shape.N});
      });
      std::cout << "time " << shape.N << "x" << shape.K << " w" << shape.bits << " "
                << name_of(x_dtype) << (shape.is_grouped() ? " g128" : "")
                << (has_zeros ? " zeros" : "") << " M " << M << " digits *: " << time
                << " us, floor " << floor << std::endl;
    }
    for (const int64_t M : {1, 2, 8, 16}) {
      for (const int tiles : {1, 2, 4}) {
        if (!has_gemv_kernel(shape, {tiles}) || (M != 1 && M != 8 && tiles != chosen.tiles))
          continue;
        const double time = time_products(context_, copies, [&](size_t copy) {
          gemv_planned(context_, weights[copy],
                       {.x = {x_.data(), x_dtype, M, shape.K, shape.K},
                        .x_scales = x_dtype == DType::kI8 ? scales_() : nullptr},
                       {tiles}, {y_.data(), DType::kF16, M, shape.N, shape.N});
        });
        std::cout << "time " << shape.N << "x" << shape.K << " w" << shape.bits << " "
                  << name_of(x_dtype) << (shape.is_grouped() ? " g128" : "")
                  << (has_zeros ? " zeros" : "") << " M " << M << " tiles " << tiles
                  << (tiles == chosen.tiles ? " *" : "") << ": " << time << " us, floor " << floor
                  << "\n";
      }
    }
  }

  size_t copies_of(size_t num_bytes) const {
    return std::clamp<size_t>(ceil_div(3 * device_.l2_bytes, num_bytes), 2, 80);
  }
  float* scales_() const { return reinterpret_cast<float*>(x_scales_.data()); }

  CublasLtGemm lt_{context_, {}};
  DeviceBuffer x_{static_cast<size_t>(kRowsMax * 28672 * 2), "inputs"};
  DeviceBuffer y_{static_cast<size_t>(kRowsMax * 57344 * 2), "outputs"};
  DeviceBuffer x_scales_{static_cast<size_t>(kRowsMax) * 4, "scales"};
};

TEST_F(TimeGemv, ListsAllPlans) {
  fill_random(x_.data(), x_.num_bytes());
  fill_random(x_scales_.data(), x_scales_.num_bytes());
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {4096, 4096}, {14336, 4096}, {28672, 4096}, {8192, 8192}, {57344, 8192}, {8192, 28672}};
  for (const auto& [N, K] : shapes) time_lt(N, K);
  for (const int bits : {2, 8, 1, 3}) {
    for (const auto& [N, K] : shapes) {
      for (const DType dtype : {DType::kF16, DType::kBf16, DType::kI8}) {
        for (const int64_t group_size : {K, int64_t{128}}) {
          const GemvShape shape = {
              .inputs = dtype == DType::kI8 ? GemvInputs::kS8 : GemvInputs::kNumbers,
              .bits = bits,
              .N = N,
              .K = K,
              .group_size = group_size};
          if (!why_not_gemv(shape).empty()) continue;
          time_gemv(shape, dtype, false);
          if (bits == 2 && dtype == DType::kF16 && group_size == 128) time_gemv(shape, dtype, true);
        }
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
