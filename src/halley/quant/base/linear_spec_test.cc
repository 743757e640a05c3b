#include "halley/quant/base/linear_spec.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

LinearSpec spec_of(const std::vector<std::string>& names) {
  LinearSpec spec;
  for (const std::string& name : names) spec.parts.push_back({.name = name, .out_features = 3});
  return spec;
}

TEST(LinearSpecName, JoinsWhatDiffers) {
  EXPECT_EQ(spec_of({"l.0.attn.q_proj", "l.0.attn.k_proj", "l.0.attn.v_proj"}).display_name(),
            "l.0.attn.{q,k,v}_proj");
  EXPECT_EQ(spec_of({"mlp.gate_proj", "mlp.up_proj"}).display_name(), "mlp.{gate,up}_proj");
  EXPECT_EQ(spec_of({"experts.3.w1", "experts.3.w3"}).display_name(), "experts.3.w{1,3}");
  EXPECT_EQ(spec_of({"lm_head"}).display_name(), "lm_head");
  EXPECT_EQ(spec_of({"a", "aa"}).display_name(), "a{,a}");
}

TEST(LinearSpecName, ShowsTheExpertOfAFusedTensor) {
  LinearSpec spec = spec_of({"experts.gate_up_proj"});
  spec.parts[0].expert = 7;
  EXPECT_EQ(spec.display_name(), "experts.gate_up_proj[7]");
}

TEST(LinearSpecName, SumsOutputFeatures) { EXPECT_EQ(spec_of({"a", "b"}).out_features(), 6); }

TEST(DenseTensor, BecomesF32Exactly) {
  const float values[] = {1.5f, -0.375f, 0.0f, 65504.0f};
  std::vector<uint16_t> half;
  for (const float value : values) half.push_back(f32_to_f16(value));
  std::vector<std::byte> shifted(sizeof(uint16_t) * half.size() + 1);
  std::memcpy(shifted.data() + 1, half.data(), sizeof(uint16_t) * half.size());
  EXPECT_THAT(to_f32({shifted.data() + 1, DType::kF16, {4}}), testing::ElementsAreArray(values));
}

class OneTensor : public TensorSource {
 public:
  explicit OneTensor(TensorInfo info) : infos_{std::move(info)} {}
  std::string description() const override { return "dir"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override {
    return name == infos_[0].name ? &infos_[0] : nullptr;
  }
  TensorView view(const TensorInfo& info) const override { return {nullptr, info.dtype, {}}; }

 private:
  std::vector<TensorInfo> infos_;
};

TEST(DenseTensor, SaysWhatIsMissingOrWrong) {
  const OneTensor source({.name = "w", .dtype = DType::kI32, .shape = {2, 3}, .num_bytes = 24});
  EXPECT_THAT([&] { find_dense_tensor(source, "v", {4}); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("dir: tensor \"v\": expected a tensor of shape [4], got none")));
  EXPECT_THAT(
      [&] {
        find_dense_tensor(source, "w", {2, 3});
      },
      ThrowsMessage<CheckpointError>(HasSubstr("expected type f16, bf16 or f32, got i32")));
  const OneTensor half({.name = "w", .dtype = DType::kF16, .shape = {2, 3}, .num_bytes = 12});
  EXPECT_THAT(
      [&] {
        find_dense_tensor(half, "w", {3, 2});
      },
      ThrowsMessage<CheckpointError>(HasSubstr("tensor \"w\": expected shape [3, 2], got [2, 3]")));
  EXPECT_EQ(&find_dense_tensor(half, "w", {2, 3}), half.find("w"));
}

}  // namespace
}  // namespace halley
