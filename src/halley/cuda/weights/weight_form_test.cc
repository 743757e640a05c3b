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

TEST(MixedForms, KeepFourBitsWithTheCodesOrNumbersOfX) {
  const auto kinds = [](int64_t group_size, ActivationQuant activation, ZeroKind zero_kind,
                        DType dtype) {
    GemmProblem asked = problem(PackedLayout::kU4Quad, group_size, activation);
    asked.zero_kind = zero_kind;
    return mixed_forms(asked, dtype, LinearUse::kAlone, true).kinds;
  };
  using Kinds = std::vector<MixedKind>;
  const auto kNone = ActivationQuant::kNone, kToken = ActivationQuant::kS8Token;
  const auto kPoint = ZeroKind::kPoint, kOffset = ZeroKind::kOffset;
  EXPECT_EQ(kinds(128, kNone, kPoint, DType::kF16), Kinds{MixedKind::kU4F16});
  EXPECT_EQ(kinds(256, kNone, kOffset, DType::kBf16), Kinds{MixedKind::kU4Bf16});
  EXPECT_EQ(kinds(256, kToken, kPoint, DType::kF16), (Kinds{MixedKind::kU4S8, MixedKind::kU4F16}));
  EXPECT_EQ(kinds(128, kToken, kOffset, DType::kBf16),
            (Kinds{MixedKind::kU4GroupS8, MixedKind::kU4Bf16}));
  EXPECT_EQ(kinds(128, kToken, kPoint, DType::kF16), Kinds{MixedKind::kU4F16});
  EXPECT_EQ(kinds(128, ActivationQuant::kS4S8Block128, kPoint, DType::kF16),
            Kinds{MixedKind::kU4F16});
}

TEST(MixedForms, HaveNoCodesOfXWhereInputsHaveAnOrderOrSumsLeaveS32) {
  GemmProblem asked = problem(PackedLayout::kU4Quad, 256, ActivationQuant::kS8Token);
  asked.has_input_perm = true;
  EXPECT_EQ(mixed_forms(asked, DType::kF16, LinearUse::kAlone, true).kinds,
            std::vector<MixedKind>{MixedKind::kU4F16});
  asked.has_input_perm = false;
  asked.K = asked.group_size = 131072;
  const MixedForms forms = mixed_forms(asked, DType::kF16, LinearUse::kAlone, true);
  EXPECT_EQ(forms.kinds, std::vector<MixedKind>{MixedKind::kU4F16});
  EXPECT_THAT(forms.why_not, HasSubstr("gemm_w4a8_mixed: K 131072 is above 131071"));
}

TEST(MixedForms, SayWhyAWeightIsNotKeptInFourBits) {
  const GemmProblem usual = problem(PackedLayout::kU4Quad, 128, ActivationQuant::kNone);
  const auto why = [](const GemmProblem& asked, DType dtype, LinearUse use, bool has_kernels) {
    const MixedForms forms = mixed_forms(asked, dtype, use, has_kernels);
    EXPECT_TRUE(forms.kinds.empty());
    return forms.why_not;
  };
  EXPECT_THAT(why(problem(PackedLayout::kU4Quad, 16, ActivationQuant::kNone), DType::kF16,
                  LinearUse::kAlone, true),
              HasSubstr("gemm_w4a16_mixed: groups of 16 inputs, neither 32, 64 nor"));
  EXPECT_THAT(why(usual, DType::kF32, LinearUse::kAlone, true), HasSubstr("f32 activations"));
  EXPECT_THAT(why(usual, DType::kF16, LinearUse::kGrouped, true), HasSubstr("experts"));
  EXPECT_THAT(why(usual, DType::kF16, LinearUse::kAlone, false),
              HasSubstr("capability 8.0 to 9.0"));
  // Of other layouts nothing is said.
  EXPECT_EQ(why(problem(PackedLayout::kU2Quad, 128, ActivationQuant::kNone), DType::kF16,
                LinearUse::kAlone, true),
            "");
}

TEST(MixedForms, KeepEightBitsThatNumbersMultiply) {
  const auto forms = [](int64_t group_size, ActivationQuant activation, DType dtype,
                        bool has_kernels = true) {
    return mixed_forms(problem(PackedLayout::kU8Quad, group_size, activation), dtype,
                       LinearUse::kAlone, has_kernels);
  };
  using Kinds = std::vector<MixedKind>;
  const auto kNone = ActivationQuant::kNone, kToken = ActivationQuant::kS8Token;
  EXPECT_EQ(forms(128, kNone, DType::kF16).kinds, Kinds{MixedKind::kU8F16});
  EXPECT_EQ(forms(256, kNone, DType::kBf16).kinds, Kinds{MixedKind::kU8Bf16});
  // With scales of groups, x that is rounded is multiplied as numbers.
  EXPECT_EQ(forms(128, kToken, DType::kBf16).kinds, Kinds{MixedKind::kU8Bf16});
  EXPECT_EQ(describe_mixed(MixedKind::kU8Bf16, problem(PackedLayout::kU8Quad, 128, kToken)),
            "u8_quad, kept in 8 bits (u8_bf16): groups of 128 inputs, activations rounded "
            "(s8_token) and multiplied as numbers");
  // Codes that the tensor cores multiply by codes of x.
  EXPECT_TRUE(forms(256, kToken, DType::kF16).kinds.empty());
  EXPECT_EQ(forms(256, kToken, DType::kF16).why_not, "");
  EXPECT_THAT(forms(16, kNone, DType::kF16).why_not,
              HasSubstr("gemm_w8a16_mixed: groups of 16 inputs"));
  EXPECT_EQ(forms(128, kNone, DType::kF32).why_not,
            "no product of 8-bit codes takes f32 activations");
  EXPECT_EQ(forms(128, kNone, DType::kF16, /*has_kernels=*/false).why_not,
            "products of 8-bit codes need compute capability 9.0");
}

TEST(GemvForm, KeepsCodesThatNumbersMultiply) {
  const auto form = [](const GemmProblem& asked, DType dtype) {
    return gemv_form(asked, dtype, LinearUse::kAlone, /*is_batch_invariant=*/false);
  };
  for (const PackedLayout layout :
       {PackedLayout::kU8Quad, PackedLayout::kU3Quad, PackedLayout::kU2Quad}) {
    for (const int64_t group_size : {32, 64, 128, 256}) {
      EXPECT_TRUE(form(problem(layout, group_size, ActivationQuant::kNone), DType::kF16).is_kept);
    }
  }
  // With scales of groups, x that is rounded is multiplied as numbers.
  const GemmProblem rounded = problem(PackedLayout::kU8Quad, 128, ActivationQuant::kS8Token);
  EXPECT_TRUE(form(rounded, DType::kBf16).is_kept);
  EXPECT_EQ(describe_gemv(rounded, DType::kBf16),
            "u8_quad, kept in 8 bits: groups of 128 inputs, activations rounded (s8_token) and "
            "multiplied as numbers; of more than 32 rows decoded to bf16");
  // Codes that the tensor cores multiply, and other layouts: nothing is said.
  for (const GemmProblem& other :
       {problem(PackedLayout::kU8Quad, 256, ActivationQuant::kS8Token),
        problem(PackedLayout::kU4Quad, 128, ActivationQuant::kNone),
        problem(PackedLayout::kF8E4M3Quad, 128, ActivationQuant::kNone)}) {
    EXPECT_FALSE(form(other, DType::kF16).is_kept) << other.w_layout;
    EXPECT_EQ(form(other, DType::kF16).why_not, "") << other.w_layout;
  }
}

TEST(GemvForm, SaysWhyAWeightIsDecoded) {
  const GemmProblem usual = problem(PackedLayout::kU2Quad, 128, ActivationQuant::kNone);
  EXPECT_THAT(gemv_form(usual, DType::kF32, LinearUse::kAlone, false).why_not,
              HasSubstr("no product of 2-bit codes takes f32 activations"));
  EXPECT_THAT(gemv_form(usual, DType::kF16, LinearUse::kGrouped, false).why_not,
              HasSubstr("experts"));
  EXPECT_THAT(gemv_form(usual, DType::kF16, LinearUse::kAlone, true).why_not,
              HasSubstr("must not depend on how many there are"));
  EXPECT_THAT(gemv_form(problem(PackedLayout::kU3Quad, 16, ActivationQuant::kNone), DType::kF16,
                        LinearUse::kAlone, false)
                  .why_not,
              HasSubstr("gemm_w3a16_gemv: groups of 16 inputs"));
  GemmProblem odd = usual;
  odd.N = 63;
  EXPECT_THAT(gemv_form(odd, DType::kF16, LinearUse::kAlone, false).why_not,
              HasSubstr("gemm_w2a16_gemv: 63 outputs are no multiple of 8"));
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

TEST(TileForm, KeepsPlanesForF16AndBlocksOfCodes) {
  const auto form = [](const GemmProblem& asked, DType dtype) {
    return tile_form(asked, dtype, LinearUse::kAlone, true);
  };
  const GemmProblem nested = problem(PackedLayout::kNestedF16Quad, 1, ActivationQuant::kNone);
  EXPECT_EQ(form(nested, DType::kF16), TileForm::kNested);
  EXPECT_EQ(form(nested, DType::kBf16), TileForm::kNone);
  GemmProblem odd = nested;
  odd.K = 200;
  EXPECT_EQ(form(odd, DType::kF16), TileForm::kNone);
  EXPECT_EQ(tile_form(nested, DType::kF16, LinearUse::kGrouped, true), TileForm::kNone);
  EXPECT_EQ(tile_form(nested, DType::kF16, LinearUse::kAlone, false), TileForm::kNone);
  GemmProblem blocks = problem(PackedLayout::kU4Quad, 128, ActivationQuant::kS4S8Block128);
  EXPECT_EQ(form(blocks, DType::kBf16), TileForm::kW4ax);
  blocks.group_size = 64;
  EXPECT_EQ(form(blocks, DType::kBf16), TileForm::kNone);
  EXPECT_EQ(form(problem(PackedLayout::kU4Quad, 128, ActivationQuant::kNone), DType::kF16),
            TileForm::kNone);
}

TEST(TileForm, FitsScalesOfF16AndMiddleZeros) {
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

TEST(CodeScales, GiveTheWeightsOfTheCpu) {
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ZeroKind zero_kind : {ZeroKind::kPoint, ZeroKind::kOffset}) {
      const QuadCase quad = {{1, 37, 70, false}, layout, 70,
                             zero_kind,          false,  ActivationQuant::kNone};
      const PackedWeight weight = make_weight(quad, 3);
      const CodeScales codes = code_scales(weight, code_shift(layout));
      ASSERT_EQ(codes.scales.size(), 37U);
      if (layout == PackedLayout::kF8E4M3Quad) continue;  // its codes are no integers
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
