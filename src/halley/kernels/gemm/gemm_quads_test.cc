#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"
#include "halley/kernels/gemm/testing/gemm_reference.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

struct QuadData {
  QuadCase quad;
  PackedWeight weight;
  GuardedMatrix x;
  std::vector<float> bias;

  QuadData(const QuadCase& of, uint32_t seed)
      : quad(of), weight(make_weight(of, seed)), x(of.shape.M, of.shape.K, /*row_gap=*/3) {
    x.fill_normal(seed + 1);
    std::mt19937 random(seed + 2);
    std::normal_distribution<float> normal;
    for (int64_t n = 0; n < of.shape.N; ++n) bias.push_back(normal(random));
  }
  const float* bias_data() const { return quad.shape.has_bias ? bias.data() : nullptr; }
};

std::vector<const GemmKernel*> kernels_for(const PackedWeight& weight) {
  std::vector<const GemmKernel*> kernels;
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (kernel.why_not(problem_of(weight)).empty()) kernels.push_back(&kernel);
  }
  return kernels;
}

// Rows [row_begin, row_end) of y.
GuardedMatrix run_kernel(const GemmKernel& kernel, QuadData& data, int64_t row_begin,
                         int64_t row_end, int num_threads) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  GuardedMatrix y(row_end - row_begin, data.quad.shape.N);
  kernel.launch(context, data.weight, data.bias_data(), data.x.matrix().rows(row_begin, row_end),
                y.matrix());
  EXPECT_TRUE(y.guards_are_intact()) << kernel.name << " " << data.quad << " wrote outside";
  return y;
}

// The exact result, and the size of the terms that an error is measured by.
struct Expected {
  std::vector<float> y;
  std::vector<double> size;  // sum of |x w| + |x zero| scale
};

Expected expected_of(const GemmKernel& kernel, QuadData& data) {
  const auto [M, N, K, has_bias] = data.quad.shape;
  const PackedWeight& weight = data.weight;
  std::vector<float> x;
  for (int64_t m = 0; m < M; ++m) x.insert(x.end(), data.x.row(m), data.x.row(m) + K);
  if (kernel.x_dtype == DType::kBf16) {
    for (float& value : x) value = bf16_to_f32(f32_to_bf16(value));
  }
  Expected expected{std::vector<float>(static_cast<size_t>(M * N)), {}};
  gemm_reference(weight, data.bias_data(), f32_matrix(std::as_const(x).data(), M, K),
                 f32_matrix(expected.y.data(), M, N));
  std::vector<float> rounded(x.size()), w(static_cast<size_t>(K));
  for (int64_t m = 0; m < M; ++m) {
    const auto begin = static_cast<size_t>(m * K);
    round_activations(weight.quant, {x.data() + begin, w.size()}, rounded.data() + begin);
  }
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      unpack_row(weight, n, w.data());
      double size = has_bias ? std::abs(double{data.bias[static_cast<size_t>(n)]}) : 0.0;
      for (int64_t k = 0; k < K; ++k) {
        const auto from =
            weight.quant.input_perm.empty()
                ? static_cast<size_t>(k)
                : static_cast<size_t>(weight.quant.input_perm[static_cast<size_t>(k)]);
        const float* params =
            weight.group(n / kPanelRows, k / weight.quant.group_size) + n % kPanelRows;
        const double scale = data.quad.zero_kind == ZeroKind::kPoint ? double{params[0]} : 1.0;
        const double value = rounded[static_cast<size_t>(m * K) + from];
        size += std::abs(value * double{w[from]}) +
                std::abs(value * double{params[kPanelRows]} * scale);
      }
      expected.size.push_back(size);
    }
  }
  return expected;
}

void expect_close(const GemmKernel& kernel, const char* target, QuadData& data,
                  const Expected& expected) {
  const auto [M, N, K, has_bias] = data.quad.shape;
  GuardedMatrix y = run_kernel(kernel, data, 0, M, /*num_threads=*/2);
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      const auto i = static_cast<size_t>(m * N + n);
      const double error = std::abs(double{y.row(m)[n]} - double{expected.y[i]});
      // Written so that NaN fails.
      ASSERT_TRUE(error <= kernel.error_max * expected.size[i])
          << kernel.name << " on " << target << ", " << data.quad << ": y[" << m << "][" << n
          << "] is " << y.row(m)[n] << ", not " << expected.y[i];
    }
  }
}

TEST(QuadGemm, EveryKernelMatchesTheReferenceOnEveryCase) {
  for (const QuadCase& quad : quad_test_cases()) {
    QuadData data(quad, /*seed=*/1);
    const auto kernels = kernels_for(data.weight);
    EXPECT_FALSE(kernels.empty()) << quad;
    for (const GemmKernel* kernel : kernels) {
      const Expected expected = expected_of(*kernel, data);
      for_each_simd_target(
          [&](const char* target) { expect_close(*kernel, target, data, expected); });
    }
  }
}

// W is zero but for one input k, where feature n has the quantized value n, and x is 1 there.
TEST(QuadGemm, EveryCodeReachesTheSumExactly) {
  constexpr int64_t kInputs = 8;
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ZeroKind zero_kind : {ZeroKind::kPoint, ZeroKind::kOffset}) {
      for (const int64_t k : {0, 1, 2, 3, 6}) {
        const int64_t N = int64_t{1} << code_bits(layout);
        for (const int64_t M : {1, 2, 40}) {
          QuadData data({{M, N, kInputs}, layout, kInputs, zero_kind}, /*seed=*/3);
          for (int64_t panel = 0; panel * kPanelRows < N; ++panel) {
            PanelValues values(kInputs);
            for (int64_t n = 0; n < std::min(N, kPanelRows); ++n) {
              values.at(n, k) = static_cast<uint8_t>(panel * kPanelRows + n);
            }
            values.pack(&data.weight, panel);
          }
          for (int64_t m = 0; m < M; ++m) {
            for (int64_t i = 0; i < kInputs; ++i) data.x.row(m)[i] = i == k ? 1.0f : 0.0f;
          }
          for_each_simd_target([&](const char* target) {
            // The last one is the kernel in f32.
            const GemmKernel& kernel = *kernels_for(data.weight).back();
            GuardedMatrix y = run_kernel(kernel, data, 0, M, 1);
            std::vector<float> w(kInputs);
            for (int64_t n = 0; n < N; ++n) {
              unpack_row(data.weight, n, w.data());
              const float expected = w[static_cast<size_t>(k)];
              const float actual = y.row(M - 1)[n];
              ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)))
                  << kernel.name << " on " << target << ", M=" << M << " k=" << k << " code " << n
                  << ": " << actual << ", not " << expected;
            }
          });
        }
      }
    }
  }
}

TEST(QuadGemm, LargeScalesOfE4m3StayFinite) {
  for (const int64_t M : {1, 3}) {
    QuadData data({{M, 32, 4}, PackedLayout::kF8E4M3Quad, 4}, /*seed=*/4);
    for (float& scale : data.weight.quant.groups.as<float>().first(kPanelRows)) scale = 0x1p20f;
    for_each_simd_target([&](const char* target) {
      const GemmKernel& kernel = *kernels_for(data.weight).back();
      expect_close(kernel, target, data, expected_of(kernel, data));
    });
  }
}

TEST(QuadGemm, RowsDoNotDependOnTheBatchOrTheThreads) {
  constexpr int64_t kRows = 33;
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ActivationQuant activation : activations_of(layout)) {
      const bool is_ordered = activation == ActivationQuant::kNone;
      QuadData data({{kRows, 70, 397, true}, layout, 100, ZeroKind::kPoint, is_ordered, activation},
                    /*seed=*/5);
      for_each_simd_target([&](const char* target) {
        for (const GemmKernel* kernel : kernels_for(data.weight)) {
          GuardedMatrix all = run_kernel(*kernel, data, 0, kRows, 1);
          const auto expect_same = [&](int64_t begin, int64_t end, int num_threads) {
            GuardedMatrix some = run_kernel(*kernel, data, begin, end, num_threads);
            for (int64_t m = begin; m < end; ++m) {
              EXPECT_TRUE(some.row_equals(m - begin, all.row(m)))
                  << kernel->name << " on " << target << ", " << data.quad << " rows " << begin
                  << " to " << end << " with " << num_threads << " threads";
            }
          };
          expect_same(0, kRows, 3);
          for (const int64_t M : {1, 2, 5, 9, 17}) expect_same(kRows - M - 1, kRows - 1, 2);
        }
      });
    }
  }
}

TEST(QuadGemm, ANanInARowStaysInTheRow) {
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ActivationQuant activation : activations_of(layout)) {
      QuadData data({{3, 33, 130}, layout, 130, ZeroKind::kPoint, false, activation}, 6);
      data.x.row(1)[129] = std::numeric_limits<float>::quiet_NaN();
      for (const GemmKernel* kernel : kernels_for(data.weight)) {
        GuardedMatrix y = run_kernel(*kernel, data, 0, 3, 1);
        for (int64_t n = 0; n < 33; ++n) {
          EXPECT_TRUE(std::isfinite(y.row(0)[n]) && std::isfinite(y.row(2)[n])) << kernel->name;
          EXPECT_TRUE(std::isnan(y.row(1)[n])) << kernel->name << " " << activation;
        }
      }
    }
  }
}

TEST(QuadGemmTable, HasAKernelForEverythingThatCheckpointsAskFor) {
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ActivationQuant activation : activations_of(layout)) {
      for (const int64_t group_size : {1, 3, 5, 16, 32, 64, 100, 128, 4096}) {
        for (const ZeroKind zero_kind : {ZeroKind::kPoint, ZeroKind::kOffset}) {
          for (const bool has_input_perm : {false, true}) {
            EXPECT_NO_THROW(find_gemm_kernel(
                {layout, 100, 4096, group_size, zero_kind, has_input_perm, activation}))
                << layout << " " << activation << " " << group_size;
          }
        }
      }
    }
  }
}

TEST(QuadGemmTable, EndsWithAKernelInF32ForEveryMachine) {
  const auto kernels = cpu_gemm_kernels();
  for (const PackedLayout layout : kQuadLayouts) {
    const auto last = std::find_if(kernels.rbegin(), kernels.rend(), [&](const GemmKernel& kernel) {
      return kernel.w_layout == layout;
    });
    ASSERT_NE(last, kernels.rend()) << layout;
    EXPECT_THAT(last->name, testing::HasSubstr("a32_hwy"));
  }
}

TEST(QuadGemmTable, SaysThatAKernelDoesNotRoundSo) {
  GemmProblem problem{PackedLayout::kU2Quad, 32, 64, 32};
  problem.activation = ActivationQuant::kS8Token;
  try {
    find_gemm_kernel(problem);
    FAIL() << "expected UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("gemm_w2a32_hwy: does not round x to s8_token"));
  }
}

}  // namespace
}  // namespace halley
