// Adapters that do not fit, or ask for what is not supported: each is rejected by name.
#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/safetensors_writer.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/lora/load_adapter.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A copy of the adapter "llama" that a test edits.
class AdapterErrors : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
      fs::copy_file(testdata("lora/llama") / name, folder_ / name);
    }
    const auto dir = testdata("models/llama");
    const auto source = open_checkpoint_weights(dir);
    decoder_ = read_decoder_config(HfConfig::load(dir), *source, 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void set_field(const std::string& name, const Json& value) {
    Json config = read_test_json(testdata("lora/llama/adapter_config.json"));
    config[name] = value;
    std::ofstream(folder_ / "adapter_config.json") << config.dump();
  }

  void edit_tensors(const std::function<void(EditableSource&)>& edit) {
    const auto source = open_safetensors_file(testdata("lora/llama/adapter_model.safetensors"));
    EditableSource edited(*source);
    edit(edited);
    SafetensorsWriter writer(folder_ / "adapter_model.safetensors", edited.tensors(), {});
    for (size_t i = 0; i < edited.tensors().size(); ++i) {
      writer.append(i, edited.data(edited.tensors()[i].name));
    }
    writer.finish();
  }

  std::string error() const {
    try {
      load_adapter(folder_, decoder_, "x");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
  DecoderConfig decoder_;
};

constexpr const char* kA = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
constexpr const char* kB = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";

TEST_F(AdapterErrors, LoadsAsItIs) { EXPECT_EQ(error(), ""); }

TEST_F(AdapterErrors, FieldsThatAskForMore) {
  const std::pair<const char*, Json> edits[] = {
      {"bias", "all"},
      {"use_dora", true},
      {"lora_bias", true},
      {"fan_in_fan_out", true},
      {"modules_to_save", Json::array({"lm_head"})},
      {"trainable_token_indices", Json::array({1})},
      {"target_parameters", Json::array({"mlp.experts.down_proj"})},
      {"layer_replication", Json::array({Json::array({0, 1})})},
      {"init_lora_weights", "pissa"},
      {"peft_type", "LOHA"},
      {"use_something_new", true}};
  for (const auto& [field, value] : edits) {
    set_field(field, value);
    EXPECT_THAT(error(), HasSubstr(field)) << value;
    EXPECT_THAT(error(), HasSubstr("adapter_config.json"));
  }
}

TEST_F(AdapterErrors, ValuesOutOfRange) {
  const std::pair<const char*, Json> edits[] = {{"r", 0},
                                                {"r", 1'000'000},
                                                {"r", "4"},
                                                {"lora_alpha", 0},
                                                {"lora_alpha", -1},
                                                {"lora_alpha", 1e9},
                                                {"use_rslora", 1},
                                                {"rank_pattern", {{"q_proj", 1.5}}},
                                                {"rank_pattern", {{"q_proj", 0}}},
                                                {"alpha_pattern", {{"q_proj", 0}}},
                                                {"alpha_pattern", {{"q_proj|k_proj", 2}}}};
  for (const auto& [field, value] : edits) {
    set_field(field, value);
    EXPECT_THAT(error(), HasSubstr(field)) << value;
  }
}

TEST_F(AdapterErrors, RanksThatTheTensorsDoNotHave) {
  set_field("r", 5);
  EXPECT_THAT(error(), HasSubstr("expected shape [5, "));
}

TEST_F(AdapterErrors, TensorWithoutItsPartner) {
  edit_tensors([](EditableSource& tensors) { tensors.remove(kB); });
  EXPECT_THAT(error(), HasSubstr(kB));
}

TEST_F(AdapterErrors, TensorsOfNoLinearLayer) {
  for (const char* name :
       {"base_model.model.lm_head.lora_A.weight", "base_model.model.model.layers.7.x.lora_A.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A"}) {
    edit_tensors([&](EditableSource& tensors) {
      tensors.set({.name = name, .dtype = DType::kF32, .shape = {1, 1}, .num_bytes = 4},
                  std::vector<std::byte>(4));
    });
    EXPECT_THAT(error(), HasSubstr(name));
  }
}

TEST_F(AdapterErrors, NumbersThatAreNotFinite) {
  edit_tensors([](EditableSource& tensors) {
    std::vector<std::byte> data = tensors.data(kA);
    data[2] = data[3] = std::byte{0xff};
    tensors.set(*tensors.find(kA), data);
  });
  EXPECT_THAT(error(), HasSubstr("expected finite numbers"));
}

TEST_F(AdapterErrors, FilesThatAreNotThere) {
  fs::remove(folder_ / "adapter_model.safetensors");
  EXPECT_THAT(error(), HasSubstr("adapter_model.safetensors"));
  fs::remove(folder_ / "adapter_config.json");
  EXPECT_THAT(error(), HasSubstr("adapter_config.json"));
}

TEST_F(AdapterErrors, AdapterOfAnotherModel) {
  const auto dir = testdata("models/phi3");
  const auto source = open_checkpoint_weights(dir);
  decoder_ = read_decoder_config(HfConfig::load(dir), *source, 0);
  EXPECT_THAT(error(), HasSubstr("Check that"));
}

}  // namespace
}  // namespace halley
