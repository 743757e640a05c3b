// What decides, without a GPU, whether experts are multiplied together.
#include "halley/cuda/experts/cuda_experts.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Experts {
  std::vector<std::vector<ExpertSection>> gate_up, down;

  std::string why_not(DType dtype = DType::kBf16, bool is_gated = true) const {
    const std::string reason = why_not_grouped(dtype, is_gated, gate_up);
    return reason.empty() ? why_not_grouped(dtype, false, down) : reason;
  }
};

/// Three experts of gate and up, and down.
Experts make_experts() {
  const ExpertSection wide = {.kind = GroupedKind::kBf16, .N = 256, .K = 64, .row_stride = 64};
  const ExpertSection narrow = {.kind = GroupedKind::kBf16, .N = 64, .K = 128, .row_stride = 128};
  return {.gate_up = {{wide}, {wide}, {wide}}, .down = {{narrow}, {narrow}, {narrow}}};
}

TEST(WhyNotGrouped, ExpertsThatAreAlikeRunTogether) {
  EXPECT_EQ(make_experts().why_not(), "");
  EXPECT_EQ(Experts().why_not(), "there are no experts");
  EXPECT_EQ(make_experts().why_not(DType::kF32), "activations are f32");
  EXPECT_EQ(make_experts().why_not(DType::kF16), "weights of expert 0 are bf16, activations f16");
}

TEST(WhyNotGrouped, GateAndUpMayBeTwoSections) {
  Experts experts = make_experts();
  for (std::vector<ExpertSection>& sections : experts.gate_up) {
    sections[0].N = 128;
    sections.push_back(sections[0]);
  }
  EXPECT_EQ(experts.why_not(), "");
  EXPECT_EQ(experts.why_not(DType::kBf16, /*is_gated=*/false),
            "a layer has 2 parts of different forms");
}

TEST(WhyNotGrouped, NamesTheExpertThatDiffers) {
  const std::vector<std::pair<std::function<void(ExpertSection&)>, std::string>> cases = {
      {[](ExpertSection& section) { section.kind = GroupedKind::kS8; },
       "weights of expert 2 are s8, those of expert 0 bf16"},
      {[](ExpertSection& section) { section.kind = GroupedKind::kF16; },
       "weights of expert 2 are f16, those of expert 0 bf16"},
      {[](ExpertSection& section) { section.kind.reset(); },
       "weights of expert 2 are f32, those of expert 0 bf16"},
      {[](ExpertSection& section) { section.N = 96; }, "expert 2 has other sizes than expert 0"},
      {[](ExpertSection& section) { section.row_stride = 192; },
       "expert 2 has other sizes than expert 0"},
      {[](ExpertSection& section) { section.activation.kind = ActivationQuant::kS8Token; },
       "expert 2 rounds its inputs otherwise than expert 0"}};
  for (const auto& [change, reason] : cases) {
    Experts experts = make_experts();
    change(experts.down[2][0]);
    EXPECT_EQ(experts.why_not(), reason);
  }
  Experts experts = make_experts();
  experts.gate_up[1].clear();
  EXPECT_EQ(experts.why_not(), "expert 1 has other parts than expert 0");
}

TEST(WhyNotGrouped, QuantizedExpertsThatAreAlikeRunTogether) {
  for (const GroupedKind kind :
       {GroupedKind::kU4F16, GroupedKind::kU4GroupS8, GroupedKind::kE4m3}) {
    Experts experts = make_experts();
    // The two products may have weights of different forms.
    for (std::vector<ExpertSection>& sections : experts.gate_up) {
      sections[0].kind = kind;
      sections[0].group_size = 64;
    }
    EXPECT_EQ(experts.why_not(), "") << kind;
    EXPECT_EQ(experts.why_not(DType::kF32), "activations are f32");
    experts.gate_up[1][0].group_size = 128;
    EXPECT_THAT(experts.why_not(), AllOf(HasSubstr("weights of expert 1 are"),
                                         HasSubstr("in groups of 128, those of expert 0"),
                                         HasSubstr("in groups of 64")));
  }
}

/// A tile's row blocks of a half lie next to each other in packed tiles.
TEST(WhyNotGrouped, HalvesOfPackedTilesAreRowBlocks) {
  for (const GroupedKind kind : {GroupedKind::kU4F16, GroupedKind::kE4m3}) {
    Experts experts = make_experts();
    for (std::vector<ExpertSection>& sections : experts.gate_up) {
      sections[0].kind = kind;
      sections[0].N = 240;
    }
    EXPECT_EQ(experts.why_not(),
              is_rows(kind) ? "" : "half a layer has 120 outputs, no multiple of 32");
    for (std::vector<ExpertSection>& sections : experts.gate_up) {
      sections[0].N = 120;
      sections.push_back(sections[0]);
    }
    EXPECT_EQ(experts.why_not(), "");
  }
}

TEST(WhyNotGrouped, OrdersOfInputsAreAlikeInOneArrayAlone) {
  Experts experts = make_experts();
  for (std::vector<ExpertSection>& sections : experts.down) {
    sections[0].activation.kind = ActivationQuant::kS4S8Block128;
    sections[0].order = 1;
  }
  EXPECT_EQ(experts.why_not(), "");
  experts.down[1][0].order = 2;
  EXPECT_THAT(experts.why_not(), HasSubstr("expert 1 rounds its inputs otherwise"));
}

}  // namespace
}  // namespace halley::cuda
