#include "halley/checkpoint/weights/prefixed_weights.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

/// Tensors of one byte, which is their index.
class NamedTensors final : public TensorSource {
 public:
  explicit NamedTensors(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      bytes_.push_back(static_cast<std::byte>(infos_.size()));
      infos_.push_back({.name = name, .dtype = DType::kF32, .shape = {1}, .num_bytes = 1});
    }
  }
  std::string description() const override { return "test"; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override {
    for (const TensorInfo& info : infos_) {
      if (info.name == name) return &info;
    }
    return nullptr;
  }
  TensorView view(const TensorInfo& info) const override {
    const auto index = static_cast<size_t>(&info - infos_.data());
    return {&bytes_.at(index), info.dtype, info.shape};
  }

 private:
  std::vector<TensorInfo> infos_;
  std::vector<std::byte> bytes_;
};

TEST(PrefixedWeights, GiveTheTensorsOfABodyTheNamesOfAModels) {
  const auto source = with_model_prefix(std::make_unique<NamedTensors>(std::vector<std::string>{
      "embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight"}));
  ASSERT_EQ(source->tensors().size(), 3u);
  EXPECT_EQ(source->tensors()[0].name, "model.embed_tokens.weight");
  const TensorInfo* info = source->find("model.layers.0.mlp.up_proj.weight");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(*source->view(*info).data, std::byte{1});
  source->release(*info);
  EXPECT_EQ(source->find("layers.0.mlp.up_proj.weight"), nullptr);
  EXPECT_EQ(source->find("model.lm_head.weight"), nullptr);
  EXPECT_EQ(source->description(), "test");
}

TEST(PrefixedWeights, LeaveOtherCheckpointsAsTheyAre) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"lm_head.weight", "model.layers.0.x"},
        std::vector<std::string>{"layers.0.x", "model.norm.weight"},
        std::vector<std::string>{"transformer.h.0.x"}}) {
    auto source = std::make_unique<NamedTensors>(names);
    const TensorSource* const before = source.get();
    EXPECT_EQ(with_model_prefix(std::move(source)).get(), before);
  }
}

}  // namespace
}  // namespace halley
