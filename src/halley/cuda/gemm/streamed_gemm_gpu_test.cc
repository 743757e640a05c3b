// Products with streamed weights: all plans, types, odd sizes, gates, and bits in batches.
#include <bit>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/streamed_gemm.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"

namespace halley::cuda {
namespace {

using StreamedGemmGpuTest = GpuTest;

bool is_code(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }

/// Inputs of so many chunks.
int64_t inputs_of(DType dtype, int64_t num_chunks) {
  return num_chunks * kStreamedChunkBytes * 8 / bits_of(dtype);
}

/// Largest error relative to the sum of |x w|, before the output is rounded: tensor cores add
/// groups of products with fewer bits than f32, those of e4m3 keep 14.
double error_max_of(DType dtype) {
  if (dtype == DType::kF8E4M3) return 5e-4;
  return dtype == DType::kI8 ? 1e-6 : 5e-5;
}
struct Case {
  DType dtype = DType::kF16, y_dtype = DType::kF16;
  int64_t M = 1, N = 64, K = 64;
  bool has_bias = false, has_offsets = false;
};

/// Operands on the device and what they give. Rows of x behind M and of w behind N are NaN.
class Problem {
 public:
  Problem(const Case& c, uint32_t seed)
      : case_(c),
        x_(c.dtype, c.M + 3, c.K, gap_of(c)),
        w_(c.dtype, c.N + 3, c.K, gap_of(c)),
        x_scales_(scales(c.M, seed + 1, is_code(c.dtype) ? 0x1p-6f : 1.0f)),
        w_scales_(scales(c.N, seed + 2, is_code(c.dtype) ? 0x1p-4f : 1.0f)),
        offsets_(scales(c.N, seed + 3, 0x1p-4f)),
        bias_(scales(c.N, seed + 4, 1.0f)),
        x_values_(fill(&x_, c.M, seed + 5)),
        w_values_(fill(&w_, c.N, seed + 6)),
        x_scales_there_(x_scales_),
        w_scales_there_(w_scales_),
        offsets_there_(offsets_),
        bias_there_(bias_) {
    for (int64_t m = 0; m < c.M; ++m) {
      float sum = 0;
      for (int64_t k = 0; k < c.K; ++k) sum += x_values_[static_cast<size_t>(m * c.K + k)];
      sums_.push_back(static_cast<int32_t>(sum));
    }
    sums_there_.emplace(sums_);
    for (int64_t m = 0; m < c.M; ++m) {
      for (int64_t n = 0; n < c.N; ++n) expected_.push_back(expect(m, n));
    }
  }

  StreamedOperands operands() const {
    StreamedOperands operands;
    operands.x = ConstMatrix(x_.matrix()).rows(0, case_.M);
    operands.w = ConstMatrix(w_.matrix()).rows(0, case_.N);
    if (is_code(case_.dtype)) {
      operands.scales.x_scales = x_scales_there_.data();
      operands.scales.w_scales = w_scales_there_.data();
    }
    if (case_.has_offsets) {
      operands.scales.w_offsets = offsets_there_.data();
      operands.scales.x_sums = sums_there_->data();
    }
    if (case_.has_bias) operands.bias = bias_there_.data();
    return operands;
  }

  void expect_right(const CudaContext& context, const StreamedPlan& plan) const {
    const DeviceMatrix y(case_.y_dtype, case_.M, case_.N);
    streamed_gemm_planned(context, operands(), plan, y.matrix());
    const std::vector<float> got = y.get(context.stream);
    EXPECT_TRUE(y.guards_are_intact(context.stream));
    for (int64_t m = 0; m < case_.M; ++m) {
      for (int64_t n = 0; n < case_.N; ++n) {
        const auto i = static_cast<size_t>(m * case_.N + n);
        const auto [expected, magnitude] = expected_[i];
        const double value = got[i];
        const double sum_error = error_max_of(case_.dtype) * magnitude;
        const double error_max =
            sum_error + 1.01 * half_step_of(case_.y_dtype) * (std::fabs(expected) + sum_error) +
            1e-7;
        ASSERT_LE(std::fabs(value - expected), error_max)
            << "[" << m << ", " << n << "]: expected " << expected << ", got " << value;
      }
    }
  }

 private:
  /// Rows at multiples of 16 bytes, with something between them.
  static int64_t gap_of(const Case& c) {
    const int64_t unit = is_code(c.dtype) ? 16 : 8;
    return (unit - c.K % unit) % unit + unit;
  }

  static std::vector<float> scales(int64_t count, uint32_t seed, float size) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> exponent(-2, 2);
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(size * std::exp2(exponent(random)));
    return values;
  }

  std::vector<float> fill(DeviceMatrix* matrix, int64_t num_real, uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> codes(-128, 127);
    std::vector<float> values;
    for (int64_t i = 0; i < matrix->num_rows() * case_.K; ++i) {
      const float number =
          case_.dtype == DType::kI8 ? static_cast<float>(codes(random)) : normal(random);
      values.push_back(i < num_real * case_.K ? number : NAN);
    }
    matrix->set(values);
    const CudaStream stream;
    return matrix->get(stream);
  }

  std::pair<double, double> expect(int64_t m, int64_t n) const {
    double sum = 0, magnitude = 0;
    const float* x = &x_values_[static_cast<size_t>(m * case_.K)];
    const float* w = &w_values_[static_cast<size_t>(n * case_.K)];
    for (int64_t k = 0; k < case_.K; ++k) {
      const double term = double{x[k]} * w[k];
      sum += term;
      magnitude += std::fabs(term);
    }
    const auto row = static_cast<size_t>(m), output = static_cast<size_t>(n);
    if (is_code(case_.dtype)) {
      const double offset = case_.has_offsets ? double{offsets_[output]} * sums_[row] : 0.0;
      sum = x_scales_[row] * (w_scales_[output] * sum - offset);
      magnitude = x_scales_[row] * (w_scales_[output] * magnitude + std::fabs(offset));
    }
    if (case_.has_bias) {
      sum += bias_[output];
      magnitude += std::fabs(bias_[output]);
    }
    return {sum, magnitude};
  }

  Case case_;
  DeviceMatrix x_, w_;
  std::vector<float> x_scales_, w_scales_, offsets_, bias_;
  std::vector<int32_t> sums_;
  std::vector<float> x_values_, w_values_;
  DeviceArray<float> x_scales_there_, w_scales_there_, offsets_there_, bias_there_;
  std::optional<DeviceArray<int32_t>> sums_there_;
  std::vector<std::pair<double, double>> expected_;  // and the sum of magnitudes
};

/// All kinds of plans that fit.
std::vector<StreamedPlan> plans_of(const CudaContext& context, const StreamedOperands& operands,
                                   const std::vector<int>& chunks) {
  const StreamedShape shape = streamed_shape(operands);
  // Few SMs, so that small weights have tiles of all heights and several rounds.
  std::vector<StreamedPlan> plans = {plan_streamed(shape, streamed_device(context))};
  for (const int num_sms : {132, 12, 8, 5}) {
    StreamedDevice device = streamed_device(context);
    device.num_sms = num_sms;
    for (int tile = 0; tile < static_cast<int>(kStreamedTiles.size()); ++tile) {
      for (const int split : {1, 2, 4}) {
        for (const int rounds : {1, 2, 3}) {
          for (const int stage_chunks : chunks) {
            const StreamedChoice choice = {tile, split, rounds, stage_chunks, 113 << 10};
            if (!can_be_streamed(shape, device, choice)) continue;
            plans.push_back(streamed_plan_of(shape, device, choice));
          }
        }
      }
    }
  }
  return plans;
}

std::string name_of_plan(const StreamedPlan& plan) {
  return str("tile ", plan.tile_index, ", tokens ", plan.tokens, ", rows ", plan.box_rows,
             ", tiles ", plan.num_tiles, ", split ", plan.split, ", clusters ", plan.num_clusters,
             ", chunks ", plan.stage_chunks, ", stages ", plan.num_stages);
}

constexpr std::pair<DType, DType> kTypes[] = {
    {DType::kF16, DType::kF16},    {DType::kF16, DType::kF32},    {DType::kBf16, DType::kBf16},
    {DType::kF8E4M3, DType::kF16}, {DType::kF8E4M3, DType::kF32}, {DType::kI8, DType::kF16},
    {DType::kI8, DType::kBf16}};

TEST_F(StreamedGemmGpuTest, AllPlansAreRightForAllTypes) {
  for (const auto& [dtype, y_dtype] : kTypes) {
    for (const int64_t M : {1, 7, 16, 33, 64}) {
      const Problem problem(
          {dtype, y_dtype, M, 333, inputs_of(dtype, 17), M % 2 == 1, dtype == DType::kI8}, 1);
      for (const StreamedPlan& plan : plans_of(context_, problem.operands(), {1, 2, 4})) {
        SCOPED_TRACE(str(dtype, " to ", y_dtype, ", M = ", M, ": ", name_of_plan(plan)));
        problem.expect_right(context_, plan);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(StreamedGemmGpuTest, TakesOddNumbersOfOutputsAndRows) {
  for (const auto& [dtype, y_dtype] : kTypes) {
    for (const auto& [N, num_chunks] :
         {std::pair<int64_t, int64_t>{1, 1}, {7, 1}, {33, 2}, {64, 3}, {130, 9}, {65, 16}}) {
      const int64_t K = inputs_of(dtype, num_chunks);
      for (const int64_t M : {1, 2, 8, 9, 31, 63}) {
        const Problem problem({dtype, y_dtype, M, N, K, M % 2 == 0, false}, 2);
        SCOPED_TRACE(str(dtype, " to ", y_dtype, ", M = ", M, ", N = ", N, ", K = ", K));
        problem.expect_right(
            context_, plan_streamed(streamed_shape(problem.operands()), streamed_device(context_)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(StreamedGemmGpuTest, SharesWithoutInputsOfTheSameSize) {
  // Eleven chunks: clusters' blocks have different numbers of stages.
  const Problem problem({DType::kF16, DType::kF32, 5, 200, 704, true, false}, 3);
  for (const StreamedPlan& plan : plans_of(context_, problem.operands(), {1, 2, 3})) {
    SCOPED_TRACE(name_of_plan(plan));
    problem.expect_right(context_, plan);
    if (HasFatalFailure()) return;
  }
}

/// The same bits as a product into memory and the activation behind it.
TEST_F(StreamedGemmGpuTest, AppliesGatesToItsOutputs) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const auto& [M, F] : {std::pair<int64_t, int64_t>{1, 1000}, {9, 333}, {64, 2000}}) {
      for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
        const Problem problem({dtype, dtype, M, 2 * F, 576, true, false}, 4);
        StreamedOperands operands = problem.operands();
        const DeviceMatrix wide(dtype, M, 2 * F), expected(dtype, M, F);
        operands.gate = activation;
        for (const StreamedPlan& plan : plans_of(context_, operands, {1, 2})) {
          SCOPED_TRACE(str(dtype, ", M = ", M, ", F = ", F, ": ", name_of_plan(plan)));
          const DeviceMatrix y(dtype, M, F);
          streamed_gemm_planned(context_, operands, plan, y.matrix());
          // The plan without a gate that adds in the same order.
          StreamedOperands plain = operands;
          plain.gate.reset();
          StreamedPlan same = plan;
          same.num_tiles =
              static_cast<int>((2 * F + plan.tile_outputs() - 1) / plan.tile_outputs());
          if (plan.split > 1) same.num_clusters = same.num_tiles;
          streamed_gemm_planned(context_, plain, same, wide.matrix());
          gated_activation(context_, activation, wide.matrix(), expected.matrix());
          EXPECT_EQ(y.get(stream_), expected.get(stream_));
          EXPECT_TRUE(y.guards_are_intact(stream_));
          if (HasFailure()) return;
        }
      }
    }
  }
}

/// With one number of parts of the inputs, a row's bits do not depend on the other rows.
TEST_F(StreamedGemmGpuTest, HasTheSameBitsInEveryBatch) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF8E4M3, DType::kI8}) {
    const Problem all({dtype, DType::kF32, 64, 200, 1152, false, false}, 5);
    const StreamedDevice device = streamed_device(context_);
    const auto run = [&](int64_t M, int split, int stage_chunks) {
      StreamedOperands operands = all.operands();
      operands.x = operands.x.rows(0, M);
      const DeviceMatrix y(DType::kF32, M, 200);
      const StreamedChoice choice = {M > 40   ? 2
                                     : M > 20 ? 1
                                              : 0,
                                     split, 1, stage_chunks, 113 << 10};
      streamed_gemm_planned(context_, operands,
                            streamed_plan_of(streamed_shape(operands), device, choice), y.matrix());
      return y.get(stream_);
    };
    for (const int split : {1, 2, 4}) {
      const std::vector<float> expected = run(64, split, 2);
      for (const int64_t M : {1, 9, 17, 33}) {
        const std::vector<float> got = run(M, split, 2);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
              << dtype << ", split " << split << ", M " << M << ", element " << i;
        }
      }
    }
  }
}

/// Each product reads what the one before wrote, and starts before that is done.
TEST_F(StreamedGemmGpuTest, WaitsForTheKernelBefore) {
  constexpr int64_t K = 1024;
  constexpr int kLength = 40;
  for (const int split : {1, 2, 4}) {
    // The weight turns the order of its inputs by one.
    DeviceMatrix w(DType::kF16, K, K, 0), first(DType::kF16, 8, K, 0), second(DType::kF16, 8, K, 0);
    std::vector<float> permutation(static_cast<size_t>(K * K)), values(static_cast<size_t>(8 * K));
    for (int64_t n = 0; n < K; ++n) permutation[static_cast<size_t>(n * K + (n + 1) % K)] = 1;
    w.set(permutation);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 2039) - 1000;
    first.set(values);
    const auto run = [&] {
      for (int i = 0; i < kLength; ++i) {
        const DeviceMatrix& x = i % 2 == 0 ? first : second;
        const DeviceMatrix& y = i % 2 == 0 ? second : first;
        const StreamedOperands operands = {.x = x.matrix(), .w = w.matrix()};
        streamed_gemm_planned(context_, operands,
                              streamed_plan_of(streamed_shape(operands), streamed_device(context_),
                                               {i % 3 == 0 ? 1 : 0, split, 1, 2, 113 << 10}),
                              y.matrix());
      }
    };
    const auto expect_turned = [&](int64_t count) {
      const std::vector<float> got = first.get(stream_);
      for (int64_t i = 0; i < 8 * K; ++i) {
        const int64_t from = i / K * K + (i % K + count) % K;
        ASSERT_EQ(got[static_cast<size_t>(i)], values[static_cast<size_t>(from)]) << i;
      }
    };
    run();
    expect_turned(kLength);
    const CudaGraph graph = CudaGraph::capture(stream_, run);
    graph.launch(stream_);
    graph.launch(stream_);
    expect_turned(3 * kLength);
  }
}

/// A decoder's MLP, many times: the bits of one operation after the other.
TEST_F(StreamedGemmGpuTest, WaitsAmongOtherOperations) {
  constexpr int64_t K = 1024, M = 3;
  DeviceMatrix gate_up_weight(DType::kF16, 2 * K, K), down_weight(DType::kF16, K, K);
  gate_up_weight.fill_normal(1, 0.05f);
  down_weight.fill_normal(2, 0.05f);
  DeviceMatrix hidden(DType::kF32, M, K);
  const DeviceMatrix x(DType::kF16, M, K), gate_up(DType::kF16, M, 2 * K), y(DType::kF16, M, K);
  const std::vector<float> ones(static_cast<size_t>(K), 1.0f);
  const DeviceArray<float> norm_weight(ones);
  const NormParams norm = {.weight = norm_weight.data(), .epsilon = 1e-5f};
  const auto run = [&](bool is_one_by_one, bool is_gated) {
    const auto wait = [&] {
      if (is_one_by_one) stream_.synchronize();
    };
    for (int i = 0; i < 30; ++i) {
      norm_rows(context_, norm, hidden.matrix(), x.matrix());
      wait();
      StreamedOperands wide = {.x = x.matrix(), .w = gate_up_weight.matrix()};
      const Matrix activated = gate_up.matrix().cols(0, K);
      if (is_gated) {
        wide.gate = Activation::kSilu;
        streamed_gemm(context_, wide, activated);
      } else {
        streamed_gemm(context_, wide, gate_up.matrix());
        wait();
        gated_activation(context_, Activation::kSilu, gate_up.matrix(), activated);
      }
      wait();
      streamed_gemm(context_, {.x = activated, .w = down_weight.matrix()}, y.matrix());
      wait();
      add_rows(context_, y.matrix(), hidden.matrix());
      wait();
    }
  };
  hidden.fill_normal(3);
  run(true, false);
  const std::vector<float> right = hidden.get(stream_);
  for (const bool is_gated : {false, true}) {
    hidden.fill_normal(3);
    run(false, is_gated);
    EXPECT_EQ(hidden.get(stream_), right) << is_gated;
    const CudaGraph graph = CudaGraph::capture(stream_, [&] { run(false, is_gated); });
    hidden.fill_normal(3);
    graph.launch(stream_);
    EXPECT_EQ(hidden.get(stream_), right) << is_gated;
  }
}

}  // namespace
}  // namespace halley::cuda
