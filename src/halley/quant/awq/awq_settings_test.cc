// Configurations of AWQ checkpoints: fields, lists and rejections.
#include "halley/quant/awq/awq_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/quant/awq/awq.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

AwqSettings settings_of(const std::string& fields) {
  const std::string text = R"({"quantization_config": {"quant_method": "awq", )" + fields + "}}";
  return AwqSettings(read_quant_config(HfConfig::parse(text, "config.json"), ""));
}

template <typename Error>
void expect_error(const std::string& fields, const std::string& text) {
  EXPECT_THAT([&] { settings_of(fields); },
              ThrowsMessage<Error>(HasSubstr("config.json: field 'quantization_config." + text)))
      << fields;
}

TEST(AwqSettings, ReadsFieldsAndTheirSynonyms) {
  const AwqSettings plain =
      settings_of(R"("bits": 4, "group_size": 128, "version": "GEMM", "zero_point": false)");
  EXPECT_EQ(plain.group_size(), 128);
  EXPECT_EQ(plain.inputs_per_group(4096), 128);
  EXPECT_FALSE(plain.has_zero_points());
  EXPECT_EQ(plain.storage(), AwqStorage::kByInput);
  const AwqSettings synonyms = settings_of(R"("w_bit": 4, "q_group_size": -1)");
  EXPECT_EQ(synonyms.inputs_per_group(96), 96);
  EXPECT_TRUE(synonyms.has_zero_points());
  EXPECT_EQ(synonyms.storage(), std::nullopt);
}

TEST(AwqSettings, KnowsVersions) {
  const auto storage = [](const std::string& fields) {
    return settings_of(R"("bits": 4, "group_size": 128, )" + fields).storage();
  };
  for (const char* version : {"gemm", "exllama", "exllamav2", "ipex"}) {
    EXPECT_EQ(storage(str(R"("version": ")", version, '"')), AwqStorage::kByInput);
  }
  EXPECT_EQ(storage(R"("version": "gemv")"), AwqStorage::kByFeature);
  EXPECT_EQ(storage(R"("version": "gemv_fast")"), AwqStorage::kInterleaved);
  EXPECT_EQ(storage(R"("format": "llm-awq", "checkpoint_format": "llm-awq")"),
            AwqStorage::kInterleaved);
  EXPECT_EQ(storage(R"("version": "gemv", "backend": "llm-awq")"), std::nullopt);
}

TEST(AwqSettings, KnowsItsCheckpoints) {
  const auto source = make_dummy_weights({});
  const auto name = [&](const std::string& text) -> std::string {
    const auto config = read_quant_config(HfConfig::parse(text, "config.json"), "");
    const auto scheme = kQuantAwq.detect(config, *source);
    return scheme ? scheme->summary() : "none";
  };
  EXPECT_EQ(name("{}"), "none");
  EXPECT_EQ(name(R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})"), "none");
  EXPECT_EQ(name(R"({"quantization_config": {"bits": 4, "group_size": 128, "version": "gemm"}})"),
            "4 bits, group 128, gemm");
  EXPECT_EQ(name(R"({"quantization_config": {"quant_method": "AWQ", "bits": 4, "group_size": -1,
                  "zero_point": false}})"),
            "4 bits, per-channel, symmetric");
}

TEST(AwqSettings, RejectsWhatCannotBeRead) {
  expect_error<UnsupportedError>(R"("bits": 8, "group_size": 128)",
                                 "bits': expected 4, got 8. AWQ files hold 4 bits");
  expect_error<UnsupportedError>(R"("w_bit": 3, "group_size": 128)", "w_bit': expected 4, got 3.");
  expect_error<InputError>(R"("w_bit": "4", "group_size": 128)",
                           "w_bit': expected an integer in [1, 64], got \"4\".");
  expect_error<InputError>(R"("group_size": 128)", "bits': expected an integer");
  expect_error<InputError>(R"("bits": 4)", "group_size': expected an integer");
  expect_error<InputError>(R"("bits": 4, "group_size": 0)",
                           "group_size': expected -1 for all inputs, or a group's inputs, got 0.");
  expect_error<InputError>(R"("bits": 4, "group_size": 128, "q_group_size": 64)",
                           "q_group_size': expected \"128\", as field 'group_size' has, got "
                           "\"64\". Remove one.");
  expect_error<UnsupportedError>(R"("bits": 4, "group_size": 128, "version": "marlin")",
                                 "version': expected gemm, gemv, gemv_fast, llm-awq, exllama or "
                                 "ipex, got \"marlin\". Marlin tiles with zero points");
  expect_error<UnsupportedError>(
      R"("bits": 4, "group_size": 128, "zero_point": false, "version": "marlin")",
      "version': expected gemm, gemv, gemv_fast, llm-awq, exllama or ipex, got \"marlin\". Its "
      "tiles without zero points are those of GPTQ: state quant_method gptq, "
      "checkpoint_format marlin and sym true");
  expect_error<UnsupportedError>(R"("bits": 4, "group_size": 128, "version": "some")",
                                 "version': expected gemm, gemv, gemv_fast, llm-awq, exllama or "
                                 "ipex, got \"some\". Use a checkpoint of version gemm.");
  expect_error<InputError>(R"("bits": 4, "group_size": 128, "version": 2)",
                           "version': expected a string, got 2.");
  expect_error<InputError>(R"("bits": 4, "group_size": 128, "modules_to_not_convert": "o_proj")",
                           "modules_to_not_convert': expected an array");
}

TEST(AwqSettings, LeavesOutModulesByPartsOfTheirNames) {
  const auto settings = settings_of(
      R"("bits": 4, "group_size": 128, "modules_to_not_convert": ["o_proj", "visual"])");
  LinearSpec::Part part;
  part.name = "m.o_proj.x";
  EXPECT_EQ(settings.layer(part).says, ConfigSays::kDense);
  EXPECT_EQ(settings.layer(part).because,
            "field 'quantization_config.modules_to_not_convert' holds \"o_proj\"");
  part.name = "m.q_proj";
  EXPECT_EQ(settings.layer(part).says, ConfigSays::kQuantized);
  part.is_usually_dense = true;
  EXPECT_EQ(settings.layer(part).says, ConfigSays::kEither);
  part.is_usually_dense = false;
  const auto silent = settings_of(R"("bits": 4, "group_size": 128, "modules_to_not_convert": [])");
  EXPECT_EQ(silent.layer(part).says, ConfigSays::kEither);
}

}  // namespace
}  // namespace halley
