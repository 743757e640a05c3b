// Layers fed by the operation before them, in the form that they take, against numbers that the
// layer rounds itself: bit for bit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/cuda/weights/linear_input.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"

namespace halley::cuda {
namespace {

struct LayerCase {
  PackedLayout layout;
  ActivationQuant activation;
  bool is_codes;           // as which its inputs are taken
  int64_t group_size = 0;  // 0: all inputs
  bool has_order = false;
};
constexpr LayerCase kCases[] = {
    {PackedLayout::kU8Quad, ActivationQuant::kS8Token, true},
    {PackedLayout::kU8Quad, ActivationQuant::kS8Static, true},
    {PackedLayout::kU4Quad, ActivationQuant::kS8Token, true},
    {PackedLayout::kF8E4M3Quad, ActivationQuant::kE4m3Token, true},
    {PackedLayout::kF8E4M3Quad, ActivationQuant::kE4m3Static, true},
    {PackedLayout::kU4Quad, ActivationQuant::kNone, false},
    {PackedLayout::kU4Quad, ActivationQuant::kS4S8Block128, false},
    {PackedLayout::kU4Quad, ActivationQuant::kS4S8Block128, true, 128},
    {PackedLayout::kU4Quad, ActivationQuant::kS4S8Block128, true, 128, true}};

class LinearInputGpuTest : public GpuTest {
 protected:
  CublasLtGemm lt_{context_, {}};

  PackedWeight synthetic(const LayerCase& of, int64_t N, int64_t K, uint32_t seed) const {
    PackedWeight weight = make_weight({{1, N, K, true},
                                       of.layout,
                                       of.group_size > 0 ? of.group_size : K,
                                       ZeroKind::kPoint,
                                       of.has_order,
                                       of.activation},
                                      seed);
    // e4m3 has no zeros; weights for blocks have those of 4 bits alone.
    const float zero = of.layout == PackedLayout::kF8E4M3Quad ? 0.0f : 8.0f;
    if (zero == 0 || of.group_size > 0) {
      auto groups = weight.quant.groups.as<float>();
      for (size_t i = 0; i < groups.size(); ++i) groups[i] = i / 32 % 2 == 1 ? zero : 0.125f;
    }
    return weight;
  }

  CudaLinear load(const std::vector<const PackedWeight*>& weights, DType dtype) {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    std::vector<CudaLinear::Section> sections;
    int64_t begin = 0;
    for (const PackedWeight* weight : weights) {
      sections.push_back(loader.load_packed("a", *weight, {}, begin));
      begin += weight->N;
    }
    return CudaLinear("a", dtype, std::move(sections), lt_);
  }

  /// `write` is called with the form that the layer takes; `numbers` are what it writes otherwise.
  template <typename Write>
  void expect_same(const CudaLinear& linear, const DeviceMatrix& numbers, const Write& write,
                   const std::string& what) {
    const int64_t M = numbers.num_rows();
    DeviceMatrix right(DType::kF32, M, linear.out_features());
    DeviceMatrix got(DType::kF32, M, linear.out_features());
    linear.run(context_, numbers.matrix(), right.matrix());
    const size_t mark = workspace_.mark();
    const LinearInput input = take_linear_input(context_, linear, M);
    EXPECT_LE(workspace_.mark() - mark, linear_input_bytes(linear, M)) << what;
    EXPECT_EQ(input.num_rows(), M);
    write(input);
    run_linear(context_, linear, input, got.matrix());
    workspace_.release(mark);
    const std::vector<float> got_values = got.get(stream_), right_values = right.get(stream_);
    for (size_t i = 0; i < got_values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got_values[i]), std::bit_cast<uint32_t>(right_values[i]))
          << what << " at " << i << ": " << got_values[i] << " and " << right_values[i];
    }
    EXPECT_FALSE(std::isnan(got_values.front())) << what;
    EXPECT_TRUE(got.guards_are_intact(stream_)) << what;
  }
};

TEST_F(LinearInputGpuTest, IsWhatTheLayerWouldHaveRoundedItself) {
  constexpr int64_t N = 96;
  for (const LayerCase& of : kCases) {
    for (const int64_t K : {256, 200}) {
      const PackedWeight weight = synthetic(of, N, K, 4);
      const std::vector<float> ones(static_cast<size_t>(K), 1.0f);
      const DeviceArray<float> norm_weight(ones);
      const NormParams norm = {.weight = norm_weight.data(), .epsilon = 1e-5f};
      for (const DType dtype : {DType::kF16, DType::kBf16}) {
        const CudaLinear linear = load({&weight}, dtype);
        EXPECT_EQ(linear.code_form() != nullptr, of.is_codes) << linear.describe();
        for (const int64_t M : {1, 9, 40}) {
          const std::string what =
              str(of.layout, ", ", of.activation, ", ", name_of(dtype), ", [", M, ", ", K, "]");
          DeviceMatrix x(DType::kF32, M, K), block(dtype, M, K), gate_up(dtype, M, 2 * K);
          DeviceMatrix numbers(dtype, M, K);
          x.fill_normal(1, 3.0f);
          block.fill_normal(2);
          gate_up.fill_normal(3);
          norm_rows(context_, norm, x.matrix(), numbers.matrix());
          expect_same(
              linear, numbers,
              [&](const LinearInput& y) { norm_rows(context_, norm, x.matrix(), y); },
              what + ", norm");
          gated_activation(context_, Activation::kSilu, gate_up.matrix(), numbers.matrix());
          expect_same(
              linear, numbers,
              [&](const LinearInput& y) {
                gated_activation(context_, Activation::kSilu, gate_up.matrix(), y);
              },
              what + ", activation");
          DeviceMatrix hidden(DType::kF32, M, K);
          hidden.set(x.get(stream_));
          add_norm_rows(context_, norm, block.matrix(), hidden.matrix(), numbers.matrix());
          expect_same(
              linear, numbers,
              [&](const LinearInput& y) {
                add_norm_rows(context_, norm, block.matrix(), x.matrix(), y);
              },
              what + ", norm of a sum");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(LinearInputGpuTest, SectionsOfOneRoundingShareTheirCodes) {
  const PackedWeight a = synthetic(kCases[0], 32, 128, 1), b = synthetic(kCases[2], 48, 128, 2);
  const PackedWeight other = synthetic(kCases[3], 16, 128, 3);
  const CudaLinear linear = load({&a, &b}, DType::kBf16);
  ASSERT_NE(linear.code_form(), nullptr);
  const std::vector<float> ones(128, 1.0f);
  const DeviceArray<float> norm_weight(ones);
  const NormParams norm = {.weight = norm_weight.data(), .epsilon = 1e-5f};
  DeviceMatrix x(DType::kF32, 5, 128);
  const DeviceMatrix numbers(DType::kBf16, 5, 128);
  x.fill_normal(8);
  norm_rows(context_, norm, x.matrix(), numbers.matrix());
  expect_same(
      linear, numbers, [&](const LinearInput& y) { norm_rows(context_, norm, x.matrix(), y); },
      "two sections");
  EXPECT_EQ(load({&a, &other}, DType::kBf16).code_form(), nullptr);
}

TEST_F(LinearInputGpuTest, NumbersMayLieInTheCallersMemory) {
  const PackedWeight codes = synthetic(kCases[0], 32, 128, 1),
                     dense = synthetic(kCases[5], 32, 128, 2);
  const DeviceMatrix numbers(DType::kF16, 3, 128);
  const size_t mark = workspace_.mark();
  const CudaLinear takes_numbers = load({&dense}, DType::kF16);
  const LinearInput same = take_linear_input(context_, takes_numbers, numbers.matrix());
  EXPECT_FALSE(same.is_codes);
  EXPECT_EQ(same.numbers.data, numbers.matrix().data);
  EXPECT_EQ(workspace_.mark(), mark);
  const CudaLinear takes_codes = load({&codes}, DType::kF16);
  EXPECT_TRUE(take_linear_input(context_, takes_codes, numbers.matrix()).is_codes);
  workspace_.release(mark);
}

/// A product and its gated activation in one launch.
TEST_F(LinearInputGpuTest, GatedLayersApplyTheActivation) {
  constexpr int64_t F = 200, K = 192;
  std::vector<float> values(static_cast<size_t>(2 * F * K));
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.1f);
  for (float& value : values) value = normal(random);
  const TensorView weight = {
      reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {2 * F, K}};
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    std::vector<CudaLinear::Section> sections;
    sections.push_back(loader.load_dense("a", {&weight, 1}, {}, 0));
    const CudaLinear linear("a", dtype, std::move(sections), lt_);
    for (const int64_t M : {1, 8, 9, 32}) {
      SCOPED_TRACE(str(dtype, ", M = ", M));
      DeviceMatrix x(dtype, M, K);
      x.fill_normal(4);
      const DeviceMatrix wide(dtype, M, 2 * F), expected(dtype, M, F), y(dtype, M, F);
      ASSERT_TRUE(linear.can_run_gated(x.matrix())) << linear.describe();
      linear.run_gated(context_, Activation::kSilu, x.matrix(), y.matrix());
      linear.run(context_, x.matrix(), wide.matrix());
      gated_activation(context_, Activation::kSilu, wide.matrix(), expected.matrix());
      const std::vector<float> right = expected.get(stream_);
      EXPECT_TRUE(
          std::all_of(right.begin(), right.end(), [](float e) { return std::isfinite(e); }));
      EXPECT_EQ(y.get(stream_), right);
      EXPECT_TRUE(y.guards_are_intact(stream_));
    }
    // More rows than kernels with gates take, other inputs, and codes.
    EXPECT_FALSE(linear.can_run_gated(DeviceMatrix(dtype, 65, K).matrix()));
    EXPECT_FALSE(linear.can_run_gated(DeviceMatrix(DType::kF32, 9, K).matrix()));
    const PackedWeight codes = synthetic(kCases[0], 2 * F, 256, 5);
    EXPECT_FALSE(load({&codes}, dtype).can_run_gated(DeviceMatrix(dtype, 9, 256).matrix()));
  }
}

}  // namespace
}  // namespace halley::cuda
