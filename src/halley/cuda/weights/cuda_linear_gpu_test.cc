// Linear layers on the GPU against the f64 reference of the CPU: every layout, activation and
// checkpoint.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/cuda/weights/decode_quads.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"

namespace halley::cuda {
namespace {

class CudaLinearGpuTest : public GpuTest {
 protected:
  CublasLtGemm lt_{context_, {}};

  std::vector<float> unpack(const PackedWeight& weight) const {
    std::vector<float> numbers(static_cast<size_t>(weight.N * weight.K));
    for (int64_t n = 0; n < weight.N; ++n) unpack_row(weight, n, numbers.data() + n * weight.K);
    return numbers;
  }

  /// Rows of x of the type, and y of the layer against f64 with the weights and the rounding that
  /// the CPU has. Errors: weights and rounded inputs are rounded to the activations' type where
  /// they are numbers, FP8 products keep 14 bits.
  void check_linear(const CudaLinear& linear, std::span<const PackedWeight* const> weights,
                    const std::vector<float>& bias, int64_t M, DType dtype) {
    const int64_t K = linear.in_features(), N = linear.out_features();
    DeviceMatrix x(dtype, M, K);
    x.fill_normal(21);
    const std::vector<float> x_values = x.get(stream_);
    std::set<DType> y_dtypes = {dtype, DType::kF32};
    for (const DType y_dtype : y_dtypes) {
      DeviceMatrix y(y_dtype, M, N);
      const size_t mark = workspace_.mark();
      linear.run(context_, x.matrix(), y.matrix());
      EXPECT_EQ(workspace_.mark(), mark);
      const std::vector<float> got = y.get(stream_);
      EXPECT_TRUE(y.guards_are_intact(stream_));
      int64_t begin = 0;
      for (const PackedWeight* weight : weights) {
        const auto w = unpack(*weight);
        for (int64_t m = 0; m < M; ++m) {
          std::vector<float> rounded(static_cast<size_t>(K));
          round_activations(
              weight->quant,
              std::span(x_values).subspan(static_cast<size_t>(m * K), static_cast<size_t>(K)),
              rounded.data());
          for (int64_t n = 0; n < weight->N; ++n) {
            check_output(linear, rounded,
                         std::span(w).subspan(static_cast<size_t>(n * K), static_cast<size_t>(K)),
                         bias.empty() ? 0.0f : bias[static_cast<size_t>(begin + n)],
                         got[static_cast<size_t>(m * N + begin + n)],
                         {dtype, y_dtype, m, begin + n});
            if (HasFatalFailure()) return;
          }
        }
        begin += weight->N;
      }
    }
  }

  /// The rows that lie on the device, bit for bit.
  void expect_rows(ConstMatrix rows, const std::vector<float>& expected, DType dtype) {
    stream_.synchronize();
    const auto row_bytes = static_cast<size_t>(rows.num_cols * bits_of(dtype) / 8);
    DeviceMatrix copy(dtype, rows.num_rows, rows.num_cols);
    check_cuda(
        cudaMemcpy2D(copy.matrix().data,
                     static_cast<size_t>(copy.matrix().row_stride * bits_of(dtype) / 8), rows.data,
                     static_cast<size_t>(rows.row_stride * bits_of(dtype) / 8), row_bytes,
                     static_cast<size_t>(rows.num_rows), cudaMemcpyDeviceToDevice),
        "copy of rows");
    const std::vector<float> got = copy.get(stream_);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                std::bit_cast<uint32_t>(rounded_to(dtype, expected[i])))
          << "element " << i;
    }
  }

  struct Place {
    DType dtype, y_dtype;
    int64_t m, n;
  };
  void check_output(const CudaLinear& linear, std::span<const float> x, std::span<const float> w,
                    float bias, float got, const Place& place) {
    double expected = bias, magnitude = std::fabs(bias), largest_w = 0;
    double sum_x = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      expected += double{x[k]} * w[k];
      magnitude += std::fabs(double{x[k]} * w[k]);
      largest_w = std::max(largest_w, std::fabs(double{w[k]}));
      sum_x += std::fabs(x[k]);
    }
    // Codes with zeros are summed before the zeros are taken off: up to 256 steps of a code.
    const auto has = [&](const auto& is_so) {
      return std::any_of(linear.sections().begin(), linear.sections().end(), is_so);
    };
    const bool has_s8 = has([](const auto& section) {
      return section.weight->input(Precision::kFull).dtype == DType::kI8;
    });
    const bool has_f8 = has([](const auto& section) {
      return section.weight->input(Precision::kFull).dtype == DType::kF8E4M3;
    });
    // Scales of 4-bit weights are rounded to the type before the weights are.
    const bool has_mixed =
        has([](const auto& section) { return section.weight->mixed() != nullptr; });
    const double code_error = has_s8 ? 1e-5 * sum_x * std::max(largest_w, 1.0) : 0.0;
    const double sum_error = has_f8 ? 2e-3 : 5e-5;
    const double num_roundings = has_mixed ? 3.1 : 2.1;
    const double error_max = (num_roundings * half_step_of(place.dtype) + sum_error) * magnitude +
                             code_error + half_step_of(place.y_dtype) * std::fabs(expected) + 1e-6;
    ASSERT_LE(std::fabs(got - expected), error_max)
        << "[" << place.m << ", " << place.n << "] to " << place.y_dtype << ": expected "
        << expected << ", got " << got << "\n"
        << linear.describe();
  }
};

TEST_F(CudaLinearGpuTest, DecodesEveryLayoutBitForBit) {
  uint32_t seed = 0;
  for (const QuadCase& quad : quad_test_cases()) {
    if (quad.shape.M > 4 || quad.shape.N == 0) continue;
    SCOPED_TRACE(str(quad));
    const PackedWeight weight = make_weight(quad, ++seed);
    const DeviceArray<uint8_t> data(std::vector<uint8_t>(
        reinterpret_cast<const uint8_t*>(weight.data.data()),
        reinterpret_cast<const uint8_t*>(weight.data.data()) + weight.data.num_bytes()));
    const auto group_span = weight.quant.groups.as<float>();
    const DeviceArray<float> groups(std::vector<float>(group_span.begin(), group_span.end()));
    const DeviceArray<int32_t> order(weight.quant.input_perm.empty() ? std::vector<int32_t>{0}
                                                                     : weight.quant.input_perm);
    const DeviceArray<uint32_t> num_lost(std::vector<uint32_t>{0});
    const QuadPanels panels = {
        .layout = weight.layout,
        .data = data.data(),
        .groups = groups.data(),
        .group_size = weight.quant.group_size,
        .zero_kind = weight.quant.zero_kind,
        .input_perm = weight.quant.input_perm.empty() ? nullptr : order.data()};
    const std::vector<float> expected = unpack(weight);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
      DeviceMatrix rows(dtype, weight.N, weight.K);
      decode_quads(context_, panels, rows.matrix(), num_lost.data());
      const std::vector<float> got = rows.get(stream_);
      EXPECT_TRUE(rows.guards_are_intact(stream_));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]),
                  std::bit_cast<uint32_t>(rounded_to(dtype, expected[i])))
            << dtype << " element " << i;
      }
    }
  }
}

TEST_F(CudaLinearGpuTest, NumbersInTwoPlanesAreRight) {
  PackedWeight weight;
  weight.layout = PackedLayout::kNestedF16Quad;
  weight.N = 37;
  weight.K = 128;
  allocate_quantized(&weight);
  auto* bytes = reinterpret_cast<uint8_t*>(weight.data.data());
  const size_t panel_bytes = weight.data.num_bytes() / 2;  // two panels
  std::mt19937 random(6);
  for (size_t i = 0; i < weight.data.num_bytes() / 2; ++i) {
    const auto bits = static_cast<uint16_t>((random() % 0x3F01) | (random() & 0x8000u));
    const size_t upper = i / (panel_bytes / 2) * panel_bytes + i % (panel_bytes / 2);
    bytes[upper] = split_f16(bits).upper;
    bytes[upper + panel_bytes / 2] = split_f16(bits).lower;
  }
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    std::vector<CudaLinear::Section> sections;
    sections.push_back(loader.load_packed("a", weight, {}, 0));
    EXPECT_EQ(std::string(sections[0].weight->low_kernel_name()) != "", dtype == DType::kF16);
    if (dtype != DType::kF16) expect_rows(sections[0].weight->rows()->w(), unpack(weight), dtype);
    const CudaLinear linear("a", dtype, std::move(sections), lt_);
    const PackedWeight* weights[] = {&weight};
    check_linear(linear, weights, {}, 6, dtype);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaLinearGpuTest, EveryLayoutAndActivationIsRight) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    uint32_t seed = 100;
    for (const QuadCase& quad : quad_test_cases()) {
      if (quad.shape.N == 0) continue;
      SCOPED_TRACE(str(quad, " in ", dtype));
      const PackedWeight weight = make_weight(quad, ++seed);
      std::vector<float> bias;
      if (quad.shape.has_bias) bias.assign(static_cast<size_t>(weight.N), 0.5f);
      std::vector<CudaLinear::Section> sections;
      sections.push_back(loader.load_packed("a", weight, bias, 0));
      const CudaLinear linear("a", dtype, std::move(sections), lt_);
      const PackedWeight* weights[] = {&weight};
      check_linear(linear, weights, bias, quad.shape.M, dtype);
      if (HasFatalFailure()) return;
    }
  }
}

/// All kinds of rounding with one scale for each output, at sizes of real layers: those that the
/// tensor cores multiply as codes.
TEST_F(CudaLinearGpuTest, CodesOfAlignedLayersAreRight) {
  CudaWeightLoader loader(host_, context_, lt_, DType::kBf16);
  const std::pair<PackedLayout, ActivationQuant> kinds[] = {
      {PackedLayout::kU8Quad, ActivationQuant::kS8Token},
      {PackedLayout::kU8Quad, ActivationQuant::kS8Static},
      {PackedLayout::kU4Quad, ActivationQuant::kS8Token},
      {PackedLayout::kF8E4M3Quad, ActivationQuant::kE4m3Token},
      {PackedLayout::kF8E4M3Quad, ActivationQuant::kE4m3Static}};
  for (const auto& [layout, activation] : kinds) {
    for (const int64_t M : {1, 17, 64}) {
      const QuadCase quad = {{M, 96, 256, true}, layout, 256, ZeroKind::kPoint, false, activation};
      SCOPED_TRACE(str(quad));
      PackedWeight weight = make_weight(quad, 9);
      if (layout == PackedLayout::kF8E4M3Quad) {
        auto groups = weight.quant.groups.as<float>();
        for (size_t i = 0; i < groups.size(); ++i) groups[i] = i / 32 % 2 == 1 ? 0.0f : 0.125f;
      }
      const std::vector<float> bias(96, -0.75f);
      std::vector<CudaLinear::Section> sections;
      sections.push_back(loader.load_packed("a", weight, bias, 0));
      EXPECT_NE(sections[0].weight->input(Precision::kFull).dtype, DType::kBf16)
          << sections[0].form;
      const CudaLinear linear("a", DType::kBf16, std::move(sections), lt_);
      const PackedWeight* weights[] = {&weight};
      check_linear(linear, weights, bias, M, DType::kBf16);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaLinearGpuTest, KeepsDenseWeightsBitForBit) {
  std::mt19937 random(4);
  for (const DType stored : {DType::kF16, DType::kBf16, DType::kF32}) {
    for (const int64_t K : {64, 33}) {
      const auto element_bytes = static_cast<size_t>(bits_of(stored) / 8);
      std::vector<std::vector<std::byte>> bytes;
      std::vector<TensorView> parts;
      for (const int64_t N : {40, 1, 23}) {
        // At an odd address.
        bytes.emplace_back(1 + static_cast<size_t>(N * K) * element_bytes);
        for (size_t i = 0; i < static_cast<size_t>(N * K); ++i) {
          const float value = static_cast<float>(static_cast<int>(random() % 512) - 256) / 64;
          const uint32_t bits = stored == DType::kF32   ? std::bit_cast<uint32_t>(value)
                                : stored == DType::kF16 ? f32_to_f16(value)
                                                        : f32_to_bf16(value);
          std::memcpy(bytes.back().data() + 1 + i * element_bytes, &bits, element_bytes);
        }
        parts.push_back({bytes.back().data() + 1, stored, {N, K}});
      }
      const PackedWeight packed = pack_dense(host_, parts);
      for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
        SCOPED_TRACE(str(stored, " to ", dtype, ", K = ", K));
        CudaWeightLoader loader(host_, context_, lt_, dtype);
        std::vector<CudaLinear::Section> sections;
        sections.push_back(loader.load_dense("a", parts, {}, 0));
        expect_rows(sections[0].weight->rows()->w(), unpack(packed), dtype);
        const CudaLinear linear("a", dtype, std::move(sections), lt_);
        const PackedWeight* weights[] = {&packed};
        check_linear(linear, weights, {}, 9, dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaLinearGpuTest, RejectsNumbersThatTheTypeHasNot) {
  const std::vector<float> values = {1.0f, 70000.0f, 2.0f, std::numeric_limits<float>::infinity()};
  const TensorView view = {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {2, 2}};
  CudaWeightLoader loader(host_, context_, lt_, DType::kF16);
  EXPECT_THAT([&] { loader.load_dense("model.a", std::span(&view, 1), {}, 0); },
              testing::ThrowsMessage<CheckpointError>(testing::HasSubstr(
                  "layer \"model.a\": expected weights that are finite in f16, got 2 others")));
  const std::vector<float> small = {1, 2, 3, 4};
  const TensorView good = {reinterpret_cast<const std::byte*>(small.data()), DType::kF32, {2, 2}};
  EXPECT_EQ(loader.load_dense("model.a", std::span(&good, 1), {}, 0).N, 2);
}

TEST_F(CudaLinearGpuTest, RejectsAStaticScaleThatCannotBeUsed) {
  PackedWeight weight = empty_weight(PackedLayout::kU8Quad, 32, 32, 32);
  weight.quant.activation = ActivationQuant::kS8Static;
  CudaWeightLoader loader(host_, context_, lt_, DType::kF16);
  EXPECT_THAT([&] { loader.load_packed("model.a", weight, {}, 0); },
              testing::ThrowsMessage<CheckpointError>(
                  testing::HasSubstr("expected a scale of activations that is finite")));
}

TEST_F(CudaLinearGpuTest, SectionsThatBeginAnywhereAreRight) {
  // 7 outputs, then FP8 outputs that begin at column 7.
  const QuadCase first = {{1, 7, 64, false}, PackedLayout::kU4Quad, 32};
  const QuadCase second = {
      {1, 48, 64, false},         PackedLayout::kF8E4M3Quad, 64, ZeroKind::kPoint, false,
      ActivationQuant::kE4m3Token};
  const PackedWeight a = make_weight(first, 1);
  PackedWeight b = make_weight(second, 2);
  auto groups = b.quant.groups.as<float>();
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = i / 32 % 2 == 1 ? 0.0f : 0.5f;
  CudaWeightLoader loader(host_, context_, lt_, DType::kBf16);
  std::vector<CudaLinear::Section> sections;
  sections.push_back(loader.load_packed("a", a, {}, 0));
  sections.push_back(loader.load_packed("b", b, {}, 7));
  const CudaLinear linear("ab", DType::kBf16, std::move(sections), lt_);
  EXPECT_THAT(linear.describe(), testing::HasSubstr("begin at multiples of 16 bytes"));
  const PackedWeight* weights[] = {&a, &b};
  check_linear(linear, weights, {}, 20, DType::kBf16);
}

TEST_F(CudaLinearGpuTest, WorkspaceIsWhatItSays) {
  const QuadCase quad = {
      {1, 48, 130, false},      PackedLayout::kU8Quad, 130, ZeroKind::kPoint, false,
      ActivationQuant::kS8Token};
  const PackedWeight weight = make_weight(quad, 5);
  CudaWeightLoader loader(host_, context_, lt_, DType::kF16);
  std::vector<CudaLinear::Section> sections;
  sections.push_back(loader.load_packed("a", weight, {}, 0));
  const CudaLinear linear("a", DType::kF16, std::move(sections), lt_);
  for (const int64_t M : {1, 33, 700}) {
    DeviceArena small(linear.workspace_bytes(M), "a test's workspace");
    const CudaContext context = {device_, stream_, small};
    DeviceMatrix x(DType::kF16, M, 130), y(DType::kF32, M, 48);
    x.fill_normal(3);
    EXPECT_NO_THROW(linear.run(context, x.matrix(), y.matrix())) << M;
    EXPECT_FALSE(std::isnan(y.get(stream_).back()));
  }
}

}  // namespace
}  // namespace halley::cuda
