// Times of products of a few rows, by all plans, beside cuBLASLt's of f16 weights.
#include <iostream>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/gemv/time_gemv.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kRowsMax = 16;

class TimeGemv : public GpuTest {
 protected:
  void time_plans(const GemvShape& shape, DType x_dtype, bool has_zeros) {
    const auto count = static_cast<size_t>(shape.N * shape.num_groups());
    const std::vector<float> scales(count, 0.01f);
    std::vector<float> zeros(count, static_cast<float>(1 << shape.bits) / 2);
    if (has_zeros) zeros[0] = 0;
    std::vector<GemvWeight> weights;
    const size_t copies = num_timed_copies(context_, shape.code_bytes());
    const std::vector<uint8_t> codes = random_codes(shape.code_bytes());
    for (size_t i = 0; i < copies; ++i) {
      weights.emplace_back(context_, shape, GemvParams{.scales = scales, .zeros = zeros});
      fill_pattern(weights.back().codes, codes);
    }
    const double floor = static_cast<double>(weights[0].num_bytes()) / 4.66e6;
    const GemvPlan chosen = plan_gemv(shape, device_.num_sms);
    for (const int64_t M : {1, 2}) {
      const GemvDevice limits = {.num_sms = device_.num_sms,
                                 .shared_bytes_max = static_cast<int>(device_.shared_bytes_max)};
      const bool has_planes = plan_gemv_planes(shape, M, limits).blocks > 0;
      if (!has_planes && plan_gemv_digits(shape, M, limits).blocks == 0) continue;
      const double time = time_products(context_, copies, [&](size_t copy) {
        gemv(context_, weights[copy],
             {.x = {x_.data(), x_dtype, M, shape.K, shape.K},
              .x_scales = x_dtype == DType::kI8 ? scales_() : nullptr},
             {y_.data(), DType::kF16, M, shape.N, shape.N});
      });
      std::cout << "time " << shape.N << "x" << shape.K << " w" << shape.bits << " "
                << name_of(x_dtype) << (shape.is_grouped() ? " g128" : "")
                << (has_zeros ? " zeros" : "") << " M " << M
                << (has_planes ? " planes *: " : " digits *: ") << time << " us, floor " << floor
                << std::endl;
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

  float* scales_() const { return reinterpret_cast<float*>(x_scales_.data()); }

  CublasLtGemm lt_{context_, {}};
  DeviceBuffer x_{static_cast<size_t>(kRowsMax * 28672 * 2), "inputs"};
  DeviceBuffer y_{static_cast<size_t>(kRowsMax * 57344 * 2), "outputs"};
  DeviceBuffer x_scales_{static_cast<size_t>(kRowsMax) * 4, "scales"};
};

TEST_F(TimeGemv, TimesFewRowsWithAndWithoutEarlyStarts) {
  for (const TimedGemvProblem& problem : timed_gemv_problems()) {
    const auto times = time_gemv(context_, problem, {.shapes = {{256, 512}}, .rows = {1, 8, 64}});
    ASSERT_EQ(times.size(), 2U) << problem.name;  // not of 64 rows
    for (const GemmTime& time : times) {
      EXPECT_EQ(time.problem, problem.name);
      EXPECT_GT(time.time.microseconds, 0) << time.kernel;
      EXPECT_GT(time.time.early_microseconds.value_or(0), 0) << time.kernel;
      EXPECT_GT(time.floor_microseconds, 0) << time.kernel;
    }
  }
  EXPECT_THAT(
      [&] {
        time_gemv(context_, timed_gemv_problems()[0], {.shapes = {{16, 4}}, .rows = {1}});
      },
      ThrowsMessage<UnsupportedError>(
          HasSubstr("u8_f16: expected a weight that products of a few rows take, got 16 x 4: 4 "
                    "inputs are no multiple of 8")));
}

TEST_F(TimeGemv, ListsAllPlans) {
  fill_pattern(x_, random_f16(x_.num_bytes()));
  fill_pattern(x_scales_, random_f16(x_scales_.num_bytes()));
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {4096, 4096}, {14336, 4096}, {28672, 4096}, {8192, 8192}, {57344, 8192}, {8192, 28672}};
  for (const GemmTime& time :
       time_gemm(context_, lt_, "f16", {.shapes = shapes, .rows = {1, 8, 16, 32, 64}})) {
    std::cout << "time " << time.N << "x" << time.K << " f16 " << time.kernel << " M " << time.M
              << ": " << time.time.early_microseconds.value_or(time.time.microseconds) << " us\n";
  }
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
          time_plans(shape, dtype, false);
          if (bits == 2 && dtype == DType::kF16 && group_size == 128)
            time_plans(shape, dtype, true);
        }
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
