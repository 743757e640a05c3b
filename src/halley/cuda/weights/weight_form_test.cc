// What is decided of weights without a GPU: forms, scales, places of codes.
#include "halley/cuda/weights/weight_form.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/cuda/weights/gemv_linear.h"
#include "halley/cuda/weights/quad_code.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;

TEST(QuadCode, IsWhatTheCpuUnpacks) {
  std::mt19937 random(1);
  for (const PackedLayout layout : kQuadLayouts) {
    ASSERT_EQ(static_cast<size_t>(quad_unit_bytes(layout)),
              packed_bytes(layout, kPanelRows, kQuadUnitInputs))
        << layout;
    std::vector<uint8_t> unit(static_cast<size_t>(quad_unit_bytes(layout)));
    for (uint8_t& byte : unit) byte = static_cast<uint8_t>(random());
    std::vector<uint8_t> quads(kQuadUnitInputs * kPanelRows);
    unpack_unit(layout, reinterpret_cast<const std::byte*>(unit.data()), quads.data());
    for (int column = 0; column < 32; ++column) {
      for (int quad = 0; quad < 8; ++quad) {
        for (int i = 0; i < 4; ++i) {
          ASSERT_EQ(quad_code(layout, unit.data(), column, quad, i),
                    quads[static_cast<size_t>(quad * 128 + column * 4 + i)])
              << layout << " column " << column << ", quad " << quad << ", " << i;
        }
      }
    }
  }
  EXPECT_EQ(2 * static_cast<size_t>(quad_unit_bytes(PackedLayout::kNestedF16Quad)),
            packed_bytes(PackedLayout::kNestedF16Quad, kPanelRows, kQuadUnitInputs));
}

GemmProblem problem(PackedLayout layout, int64_t group_size, ActivationQuant activation) {
  return {
      .w_layout = layout, .N = 64, .K = 256, .group_size = group_size, .activation = activation};
}

TEST(WeightForm, KeepsCodesThatTheTensorCoresMultiply) {
  for (const PackedLayout layout : {PackedLayout::kU8Quad, PackedLayout::kU4Quad}) {
    for (const ActivationQuant kind : {ActivationQuant::kS8Token, ActivationQuant::kS8Static}) {
      EXPECT_EQ(weight_form(problem(layout, 256, kind), DType::kBf16).dtype, DType::kI8) << layout;
    }
  }
  for (const ActivationQuant kind : {ActivationQuant::kE4m3Token, ActivationQuant::kE4m3Static}) {
    const WeightForm form = weight_form(problem(PackedLayout::kF8E4M3Quad, 256, kind), DType::kF16);
    EXPECT_EQ(form.dtype, DType::kF8E4M3);
    EXPECT_EQ(form.why_numbers, "");
  }
}

TEST(WeightForm, SaysWhyAWeightIsDecoded) {
  const auto why = [](PackedLayout layout, int64_t group_size, ActivationQuant activation) {
    const WeightForm form = weight_form(problem(layout, group_size, activation), DType::kBf16);
    EXPECT_EQ(form.dtype, DType::kBf16);
    return form.why_numbers;
  };
  EXPECT_THAT(why(PackedLayout::kU4Quad, 128, ActivationQuant::kS8Token),
              HasSubstr("groups of 128 inputs have scales"));
  EXPECT_THAT(why(PackedLayout::kU4Quad, 256, ActivationQuant::kNone),
              HasSubstr("activations are not rounded"));
  EXPECT_THAT(why(PackedLayout::kF8E4M3Quad, 256, ActivationQuant::kE4m3Group128),
              HasSubstr("blocks of its activations"));
  EXPECT_THAT(why(PackedLayout::kU4Quad, 256, ActivationQuant::kS4S8Block128),
              HasSubstr("blocks of its activations"));
  EXPECT_THAT(why(PackedLayout::kNestedF16Quad, 256, ActivationQuant::kNone),
              HasSubstr("two planes"));
  EXPECT_THAT(why(PackedLayout::kU8Quad, 256, ActivationQuant::kE4m3Token),
              HasSubstr("no product takes"));
  EXPECT_EQ(why(PackedLayout::kF16Panel, 0, ActivationQuant::kNone), "");
  GemmProblem wide = problem(PackedLayout::kU8Quad, 131072, ActivationQuant::kS8Token);
  wide.K = 131072;
  EXPECT_THAT(weight_form(wide, DType::kF16).why_numbers, HasSubstr("at most 131071 inputs"));
  wide.K = 131071;
  EXPECT_EQ(weight_form(wide, DType::kF16).dtype, DType::kI8);
}

TEST(GemvScales, AreInCodes) {
  PackedWeight weight = empty_weight(PackedLayout::kU8Quad, 40, 300, 128);
  auto groups = weight.quant.groups.as<float>();
  const auto at = [](int64_t n, int64_t group) { return (n / 32 * 3 + group) * 64 + n % 32; };
  groups[static_cast<size_t>(at(35, 2))] = 0.5f;
  groups[static_cast<size_t>(at(35, 2) + 32)] = 20;
  EXPECT_EQ(gemv_scales(weight).scales.at(35 * 3 + 2), 0.5f);
  EXPECT_EQ(gemv_scales(weight).zeros.at(35 * 3 + 2), 20);
  weight.quant.zero_kind = ZeroKind::kOffset;
  EXPECT_EQ(gemv_scales(weight).zeros.at(35 * 3 + 2), 40);
  groups[static_cast<size_t>(at(35, 2))] = 0.3f;
  EXPECT_TRUE(gemv_scales(weight).zeros.empty());
}

TEST(GemvLinear, DecodesInPartsThatFit) {
  EXPECT_EQ(decoded_outputs(4096, 4096), 4096);
  EXPECT_EQ(decoded_outputs(14336, 4096), 3584);
  EXPECT_EQ(decoded_outputs(40, 264), 40);
  for (const int64_t N : {1, 1000, 57344, 128256}) {
    for (const int64_t K : {8, 4096, 28672, 1 << 20}) {
      const int64_t part = decoded_outputs(N, K);
      EXPECT_GT(part, 0);
      EXPECT_LE(part, N);
      EXPECT_LE(part * K * 2, kDecodedBytesMax + 64 * K * 2) << N << " " << K;
    }
  }
  EXPECT_TRUE(are_decoded_parts_aligned(14336, 4096, 0, DType::kF16));
  EXPECT_FALSE(are_decoded_parts_aligned(14336, 4096, 4, DType::kF16));
  EXPECT_TRUE(are_decoded_parts_aligned(14336, 4096, 4, DType::kF32));
  EXPECT_FALSE(are_decoded_parts_aligned(14337, 4096, 0, DType::kF16));
}

TEST(W4ax, FitsScalesOfF16AndMiddleZeros) {
  PackedWeight weight = empty_weight(PackedLayout::kU4Quad, 40, 300, 128);
  auto groups = weight.quant.groups.as<float>();
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = i / 32 % 2 == 1 ? 8.0f : 0.125f;
  EXPECT_TRUE(fits_w4ax(weight));
  groups[3] = 1.0f + 0x1p-21f;
  EXPECT_TRUE(fits_w4ax(weight));
  groups[3] = 1.0f + 0x1p-22f;
  EXPECT_FALSE(fits_w4ax(weight));
  groups[3] = 1.0f;
  groups[32 + 3] = 7.0f;
  EXPECT_FALSE(fits_w4ax(weight));
}

TEST(JoinReasons, LeavesOutWhatIsThere) {
  EXPECT_EQ(join_reasons("", "one"), "one");
  EXPECT_EQ(join_reasons("one", ""), "one");
  EXPECT_EQ(join_reasons("one", "two"), "one; two");
  EXPECT_EQ(join_reasons("one; two", "one"), "one; two");
  EXPECT_EQ(join_reasons("one; two", "two"), "one; two");
  EXPECT_EQ(join_reasons("ones", "one"), "ones; one");
}

TEST(CodeScales, GiveTheWeightsOfTheCpu) {
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ZeroKind zero_kind : {ZeroKind::kPoint, ZeroKind::kOffset}) {
      const QuadCase quad = {{1, 37, 70, false}, layout, 70,
                             zero_kind,          false,  ActivationQuant::kNone};
      const PackedWeight weight = make_weight(quad, 3);
      const CodeScales codes = code_scales(weight, code_shift(layout));
      ASSERT_EQ(codes.scales.size(), 37U);
      // Codes that are no integers.
      if (layout == PackedLayout::kF8E4M3Quad || layout == PackedLayout::kE2m1Quad) continue;
      std::vector<float> row(70);
      for (int64_t n = 0; n < 37; ++n) {
        unpack_row(weight, n, row.data());
        const auto output = static_cast<size_t>(n);
        const std::byte* panel =
            weight.data.data() +
            static_cast<size_t>(n / 32) * packed_bytes(layout, kPanelRows, weight.K);
        for (int64_t k = 0; k < 70; ++k) {
          const auto* unit =
              reinterpret_cast<const uint8_t*>(panel) + k / 32 * quad_unit_bytes(layout);
          const auto code =
              static_cast<double>(quad_code(layout, unit, static_cast<int>(n % 32),
                                            static_cast<int>(k % 32 / 4), static_cast<int>(k % 4)));
          const double shift = layout == PackedLayout::kU8Quad ? 128 : 0;
          const double offset = codes.offsets.empty() ? 0.0 : double{codes.offsets[output]};
          const double got = codes.scales[output] * (code - shift) - offset;
          ASSERT_NEAR(got, row[static_cast<size_t>(k)], 1e-4) << layout << " " << n << " " << k;
        }
      }
    }
  }
}

TEST(CodeScales, SymmetricCodesHaveNoOffsets) {
  PackedWeight weight = empty_weight(PackedLayout::kU8Quad, 40, 64, 64);
  auto groups = weight.quant.groups.as<float>();
  for (size_t panel = 0; panel < 2; ++panel) {
    for (size_t n = 0; n < 32; ++n) {
      groups[panel * 64 + n] = 0.5f;
      groups[panel * 64 + 32 + n] = 128.0f;
    }
  }
  CodeScales codes = code_scales(weight, 128);
  EXPECT_THAT(codes.offsets, testing::IsEmpty());
  EXPECT_TRUE(codes.has_one_scale);
  groups[64 + 5] = 0.25f;
  codes = code_scales(weight, 128);
  EXPECT_FALSE(codes.has_one_scale);
  groups[64 + 32 + 5] = 127.0f;
  codes = code_scales(weight, 128);
  EXPECT_EQ(codes.offsets.at(37), -0.25f);
  EXPECT_EQ(codes.offsets.at(36), 0.0f);
}

}  // namespace
}  // namespace halley::cuda
