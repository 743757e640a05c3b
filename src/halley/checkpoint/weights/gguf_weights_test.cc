// The tensors of GGUF files against the checkpoints that they were made of.
#include "halley/checkpoint/weights/gguf_weights.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/checkpoint/weights/model_weights.h"

namespace halley {
namespace {

const std::filesystem::path kTestdata = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata";

bool has_equal_bytes(const TensorSource& a, const TensorInfo& info, const TensorSource& b) {
  const TensorInfo* other = b.find(info.name);
  if (other == nullptr || other->dtype != info.dtype || other->shape != info.shape) return false;
  return std::memcmp(a.view(info).data, b.view(*other).data, info.num_bytes) == 0;
}

class GgufWeights : public testing::TestWithParam<const char*> {};

TEST_P(GgufWeights, HaveTheNamesRowsAndValuesOfTheCheckpoint) {
  const auto checkpoint = open_model_weights(kTestdata / "models" / GetParam());
  const auto file = open_model_weights(kTestdata / "gguf" / str(GetParam(), ".gguf"));
  ASSERT_EQ(file->tensors().size(), checkpoint->tensors().size());
  for (const TensorInfo& info : checkpoint->tensors()) {
    if (info.shape.size() == 1) {  // f32 in the file
      EXPECT_NE(file->find(info.name), nullptr) << info.name;
      continue;
    }
    EXPECT_TRUE(has_equal_bytes(*checkpoint, info, *file)) << info.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GgufWeights,
                         testing::Values("llama", "qwen2", "qwen3", "qwen3_moe", "gemma2", "phi3",
                                         "smollm3", "olmo2", "granite", "glm4"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GgufWeights, StayWhereTheyAreWhenReleased) {
  const auto file = open_gguf_weights(kTestdata / "gguf/llama.gguf");
  for (const TensorInfo& info : file->tensors()) {
    const TensorView view = file->view(info);
    const std::vector<std::byte> before(view.data, view.data + info.num_bytes);
    file->release(info);
    EXPECT_EQ(0, std::memcmp(view.data, before.data(), before.size())) << info.name;
    EXPECT_EQ(file->view(info).data, view.data) << info.name;
  }
  EXPECT_EQ(file->find("none"), nullptr);
  EXPECT_EQ(file->description(), (kTestdata / "gguf/llama.gguf").string());
}

}  // namespace
}  // namespace halley
