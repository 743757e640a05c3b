#include "halley/cuda/weights/device_gemm.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kNone = ActivationQuant::kNone, kToken = ActivationQuant::kS8Token;

/// 64 outputs of 256 inputs.
GemmDesc desc_of(PackedLayout layout, int64_t group_size, ActivationQuant activation,
                 DType activation_dtype = DType::kF16) {
  return hopper_desc(
      {.w_layout = layout, .N = 64, .K = 256, .group_size = group_size, .activation = activation},
      activation_dtype, LinearUse::kAlone);
}

std::string name_of(const DeviceGemm& gemm, DType activation_dtype) {
  switch (gemm.layout) {
    case DeviceLayout::kNested:
      return "nested";
    case DeviceLayout::kW4ax:
      return "w4ax";
    case DeviceLayout::kMixed:
      return name_of(gemm.kind(activation_dtype));
    case DeviceLayout::kGemv:
      return "gemv";
    case DeviceLayout::kCodes:
      return "codes";
    case DeviceLayout::kFloats:
      return "floats";
  }
  return "";
}

/// All layouts that take the weight by the rules.
std::vector<std::string> layouts_of(const GemmDesc& desc) {
  std::vector<std::string> names;
  for (const DeviceGemm& gemm : device_gemms()) {
    const auto why_not = gemm.why_not(gemm, desc);
    if (why_not && why_not->empty()) names.push_back(name_of(gemm, desc.activation_dtype));
  }
  return names;
}

/// The reasons of floats.
std::string why_floats(const GemmDesc& desc) {
  const DeviceGemmChoice choice = choose_device_gemm(desc);
  EXPECT_EQ(choice.gemm->layout, DeviceLayout::kFloats);
  return choice.reasons;
}

TEST(DeviceGemm, KeepsFourBitsWithTheCodesOrFloatsOfX) {
  const auto layouts = [](int64_t group_size, ActivationQuant activation, ZeroKind zero_kind,
                          DType dtype) {
    GemmDesc desc = desc_of(PackedLayout::kU4Quad, group_size, activation, dtype);
    desc.stored.zero_kind = zero_kind;
    return layouts_of(desc);
  };
  const auto kPoint = ZeroKind::kPoint, kOffset = ZeroKind::kOffset;
  EXPECT_THAT(layouts(128, kNone, kPoint, DType::kF16), ElementsAre("u4_f16", "floats"));
  EXPECT_THAT(layouts(256, kNone, kOffset, DType::kBf16), ElementsAre("u4_bf16", "floats"));
  EXPECT_THAT(layouts(256, kToken, kPoint, DType::kF16),
              ElementsAre("u4_s8", "u4_f16", "codes", "floats"));
  EXPECT_THAT(layouts(128, kToken, kOffset, DType::kBf16),
              ElementsAre("u4_group_s8", "u4_bf16", "floats"));
  EXPECT_THAT(layouts(128, kToken, kPoint, DType::kF16), ElementsAre("u4_f16", "floats"));
}

TEST(DeviceGemm, HasNoCodesOfXWhereInputsHaveAnOrderOrSumsLeaveS32) {
  GemmDesc desc = desc_of(PackedLayout::kU4Quad, 256, kToken);
  desc.stored.has_input_perm = true;
  EXPECT_THAT(layouts_of(desc), ElementsAre("u4_f16", "codes", "floats"));
  desc.stored.has_input_perm = false;
  desc.stored.K = desc.stored.group_size = 131072;
  const DeviceGemmChoice choice = choose_device_gemm(desc);
  EXPECT_EQ(name_of(*choice.gemm, DType::kF16), "u4_f16");
  EXPECT_THAT(choice.reasons, HasSubstr("gemm_w4a8_mixed: K 131072 is above 131071"));
  CudaLinearPlan plan;
  choice.gemm->plan(*choice.gemm, desc, choice.reasons, &plan);
  EXPECT_EQ(with_reasons(plan.form, choice.gemm->layout, choice.reasons),
            str(plan.form, "; ", choice.reasons));
}

TEST(DeviceGemm, SaysWhyAWeightIsNotKeptInFourBits) {
  const GemmDesc usual = desc_of(PackedLayout::kU4Quad, 128, kNone);
  EXPECT_THAT(why_floats(desc_of(PackedLayout::kU4Quad, 16, kNone)),
              HasSubstr("gemm_w4a16_mixed: groups of 16 inputs, neither 32, 64 nor"));
  EXPECT_EQ(why_floats(desc_of(PackedLayout::kU4Quad, 128, kNone, DType::kF32)),
            "no product of 4-bit codes takes f32 activations");
  GemmDesc grouped = usual;
  grouped.use = LinearUse::kGrouped;
  EXPECT_THAT(layouts_of(grouped), ElementsAre("u4_f16", "floats"));
  grouped.stored.has_input_perm = true;
  EXPECT_EQ(why_floats(grouped),
            "experts with an order of inputs each are multiplied together as numbers");
  GemmDesc older = usual;
  older.w4 = nullptr;
  EXPECT_THAT(why_floats(older), HasSubstr("capability 8.0 to 9.0"));
}

TEST(DeviceGemm, KeepsEightBitsThatFloatsMultiply) {
  const auto layouts = [](int64_t group_size, ActivationQuant activation, DType dtype) {
    return layouts_of(desc_of(PackedLayout::kU8Quad, group_size, activation, dtype));
  };
  EXPECT_THAT(layouts(128, kNone, DType::kF16), ElementsAre("u8_f16", "gemv", "floats"));
  EXPECT_THAT(layouts(256, kNone, DType::kBf16), ElementsAre("u8_bf16", "gemv", "floats"));
  // With scales of groups, x that is rounded is multiplied as floats.
  EXPECT_THAT(layouts(128, kToken, DType::kBf16), ElementsAre("u8_bf16", "gemv", "floats"));
  EXPECT_EQ(describe_mixed(MixedKind::kU8Bf16, desc_of(PackedLayout::kU8Quad, 128, kToken).stored),
            "u8_quad, kept in 8 bits (u8_bf16): groups of 128 inputs, activations rounded "
            "(s8_token) and multiplied as numbers");
  // The tensor cores multiply them by codes of x.
  EXPECT_THAT(layouts(256, kToken, DType::kF16), ElementsAre("codes", "floats"));
  EXPECT_THAT(why_floats(desc_of(PackedLayout::kU8Quad, 16, kNone)),
              HasSubstr("gemm_w8a16_mixed: groups of 16 inputs"));
  EXPECT_EQ(why_floats(desc_of(PackedLayout::kU8Quad, 128, kNone, DType::kF32)),
            "no product of 8-bit codes takes f32 activations");
  GemmDesc older = desc_of(PackedLayout::kU8Quad, 128, kNone);
  older.w4 = find_w4_kernels({.compute_major = 8, .compute_minor = 0});
  ASSERT_NE(older.w4, nullptr);
  const DeviceGemmChoice choice = choose_device_gemm(older);
  EXPECT_EQ(choice.gemm->layout, DeviceLayout::kGemv);
  EXPECT_EQ(choice.reasons, "products of 8-bit codes need compute capability 9.0");
}

TEST(DeviceGemm, KeepsTwoAndThreeBitsForFewRows) {
  for (const PackedLayout layout : {PackedLayout::kU3Quad, PackedLayout::kU2Quad}) {
    for (const int64_t group_size : {32, 64, 128, 256}) {
      EXPECT_THAT(layouts_of(desc_of(layout, group_size, kNone)), ElementsAre("gemv", "floats"));
    }
  }
  EXPECT_EQ(describe_gemv(desc_of(PackedLayout::kU8Quad, 128, kToken).stored, DType::kBf16),
            "u8_quad, kept in 8 bits: groups of 128 inputs, activations rounded (s8_token) and "
            "multiplied as numbers; of more than 32 rows decoded to bf16");
}

TEST(DeviceGemm, SaysWhyTwoAndThreeBitsAreDequantized) {
  const GemmDesc usual = desc_of(PackedLayout::kU2Quad, 128, kNone);
  EXPECT_THAT(why_floats(desc_of(PackedLayout::kU2Quad, 128, kNone, DType::kF32)),
              HasSubstr("no product of 2-bit codes takes f32 activations"));
  GemmDesc other = usual;
  other.use = LinearUse::kGrouped;
  EXPECT_EQ(why_floats(other), "experts in 2 bits are multiplied together as numbers");
  other = usual;
  other.is_batch_invariant = true;
  EXPECT_THAT(why_floats(other), HasSubstr("must not depend on how many there are"));
  EXPECT_THAT(why_floats(desc_of(PackedLayout::kU3Quad, 16, kNone)),
              HasSubstr("gemm_w3a16_gemv: groups of 16 inputs"));
  other = usual;
  other.stored.N = 63;
  EXPECT_THAT(why_floats(other), HasSubstr("gemm_w2a16_gemv: 63 outputs are no multiple of 8"));
}

TEST(DeviceGemm, KeepsPlanesForF16AndBlocksOfCodes) {
  const GemmDesc nested = desc_of(PackedLayout::kNestedF16Quad, 1, kNone);
  EXPECT_THAT(layouts_of(nested), ElementsAre("nested", "floats"));
  EXPECT_THAT(layouts_of(desc_of(PackedLayout::kNestedF16Quad, 1, kNone, DType::kBf16)),
              ElementsAre("floats"));
  GemmDesc other = nested;
  other.stored.K = 200;
  EXPECT_THAT(layouts_of(other), ElementsAre("floats"));
  other = nested;
  other.use = LinearUse::kGrouped;
  EXPECT_THAT(layouts_of(other), ElementsAre("floats"));
  other = nested;
  other.is_hopper = false;
  EXPECT_THAT(layouts_of(other), ElementsAre("floats"));
  const auto blocks = ActivationQuant::kS4S8Block128;
  EXPECT_THAT(layouts_of(desc_of(PackedLayout::kU4Quad, 128, blocks, DType::kBf16)),
              ElementsAre("w4ax", "u4_bf16", "floats"));
  EXPECT_THAT(layouts_of(desc_of(PackedLayout::kU4Quad, 64, blocks)),
              ElementsAre("u4_f16", "floats"));
}

TEST(DeviceGemm, TakesWeightsInFullPrecisionAndEmptyOnesAsFloats) {
  EXPECT_THAT(layouts_of(desc_of(PackedLayout::kF16Panel, 0, kNone)), ElementsAre("floats"));
  GemmDesc empty = desc_of(PackedLayout::kU4Quad, 128, kNone);
  empty.stored.N = 0;
  EXPECT_THAT(layouts_of(empty), ElementsAre("floats"));
  EXPECT_THAT(layouts_of(desc_of(PackedLayout::kF8E4M3Quad, 256, ActivationQuant::kE4m3Token)),
              ElementsAre("codes", "floats"));
}

/// Floats for data that are no codes say so; others are named in front of what they are.
TEST(RowsForm, HasTheReasonsOfBetterLayouts) {
  const GemmProblem problem = desc_of(PackedLayout::kU4Quad, 128, kNone).stored;
  EXPECT_EQ(rows_form(false, problem, DType::kF16, "why").why_numbers, "why");
  EXPECT_THAT(rows_form(false, problem, DType::kF16, "").why_numbers,
              HasSubstr("activations are not rounded"));
  const GemmProblem codes =
      desc_of(PackedLayout::kF8E4M3Quad, 256, ActivationQuant::kE4m3Token).stored;
  EXPECT_EQ(rows_form(true, codes, DType::kBf16, "").dtype, DType::kF8E4M3);
  EXPECT_EQ(rows_form(false, codes, DType::kBf16, "zeros").dtype, DType::kBf16);
}

}  // namespace
}  // namespace halley::cuda
