// Configurations of GPTQ checkpoints: fields, rules, lists and rejections.
#include "halley/quant/gptq/gptq_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/quant/gptq/gptq.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

std::string declaration(const std::string& fields) {
  return R"({"quantization_config": {"quant_method": "gptq", )" + fields + "}}";
}

QuantConfig config_of(const std::string& text) {
  return read_quant_config(HfConfig::parse(text, "config.json"), "");
}

GptqSettings settings_of(const std::string& fields) {
  return GptqSettings(config_of(declaration(fields)));
}

GptqSettings::Layer layer_of(const std::string& fields, const std::string& name,
                             bool is_usually_dense = false) {
  LinearSpec::Part part;
  part.name = name;
  part.is_usually_dense = is_usually_dense;
  return settings_of(R"("bits": 4, "group_size": 128)" + fields).layer(part);
}

template <typename Error>
void expect_error(const std::string& fields, const std::string& text) {
  EXPECT_THAT([&] { settings_of(fields); },
              ThrowsMessage<Error>(HasSubstr("config.json: field 'quantization_config." + text)))
      << fields;
}

TEST(GptqSettings, ReadsFieldsAndTheirSynonyms) {
  const GptqSettings plain = settings_of(
      R"("bits": 4, "group_size": 128, "desc_act": false, "sym": true, "checkpoint_format": "gptq",
         "format": "gptq", "pack_dtype": "int32", "meta": {"quantizer": ["gptqmodel:5.0"]})");
  EXPECT_EQ(plain.defaults().bits, 4);
  EXPECT_EQ(plain.defaults().group_size, 128);
  EXPECT_EQ(plain.defaults().has_act_order, false);
  EXPECT_EQ(plain.defaults().is_symmetric, true);
  EXPECT_EQ(plain.storage(), GptqStorage::kZeroMinusOne);
  const GptqSettings synonyms =
      settings_of(R"("w_bit": 3, "q_group_size": -1, "format": "GPTQ_V2")");
  EXPECT_EQ(synonyms.defaults().bits, 3);
  EXPECT_EQ(synonyms.defaults().group_size, -1);
  EXPECT_EQ(synonyms.defaults().inputs_per_group(96), 96);
  EXPECT_FALSE(synonyms.defaults().has_act_order || synonyms.defaults().is_symmetric);
  EXPECT_EQ(synonyms.storage(), GptqStorage::kZero);
  const std::string tiles = R"("bits": 4, "group_size": 128, "is_marlin_format": true)";
  EXPECT_EQ(settings_of(tiles).storage(), GptqStorage::kTiles);
}

TEST(GptqSettings, KnowsItsCheckpoints) {
  const auto source = make_dummy_weights({});
  const auto name = [&](const std::string& text) -> std::string {
    const auto scheme = kQuantGptq.detect(config_of(text), *source);
    return scheme ? scheme->summary() : "none";
  };
  EXPECT_EQ(name("{}"), "none");
  EXPECT_EQ(name(R"({"quantization_config": {"quant_method": "awq", "bits": 4}})"), "none");
  EXPECT_EQ(name(declaration(R"("bits": 4, "group_size": 128, "sym": true)")),
            "4 bits, group 128, symmetric");
  EXPECT_EQ(name(R"({"quantization_config": {"bits": 2, "group_size": -1, "sym": false,
                  "desc_act": true, "checkpoint_format": "gptq_v2", "dynamic": {"a": {}}}})"),
            "2 bits, per-channel, asymmetric, activation order, gptq_v2, 1 rules for "
            "layers");
  EXPECT_EQ(name(R"({"quantization_config": {"quant_method": "marlin", "bits": 4,
                  "group_size": 128}})"),
            "4 bits, group 128, symmetric, marlin");
}

TEST(GptqSettings, RejectsWhatCannotBeRead) {
  expect_error<UnsupportedError>(R"("bits": 5, "group_size": 128)",
                                 "bits': expected 2, 3, 4 or 8, got 5.");
  expect_error<InputError>(R"("bits": 0, "group_size": 128)", "bits': expected an integer in");
  expect_error<InputError>(R"("group_size": 128)", "bits': expected an integer in");
  expect_error<InputError>(R"("bits": 4)", "group_size': expected an integer in");
  expect_error<InputError>(R"("bits": 4, "group_size": 0)",
                           "group_size': expected -1 for all inputs, or a group's inputs, got 0.");
  expect_error<InputError>(R"("bits": 4, "w_bit": 3, "group_size": 128)",
                           "w_bit': expected \"4\", as field 'bits' has, got \"3\". Remove one.");
  expect_error<InputError>(R"("bits": 4, "group_size": 128, "sym": 1)",
                           "sym': expected true or false, got 1.");
  expect_error<UnsupportedError>(R"("bits": 4, "group_size": 128, "pack_dtype": "int16")",
                                 "pack_dtype': expected \"int32\", got \"int16\".");
}

TEST(GptqSettings, RejectsOtherFormatsByName) {
  for (const char* format : {"gptq_p", "bitblas", "qqq", "exl3", "gguf", "fp8", "bitsandbytes",
                             "paroquant", "gemm", "gemv", "gemv_fast", "llm-awq", "some_format"}) {
    expect_error<UnsupportedError>(
        str(R"("bits": 4, "group_size": 128, "checkpoint_format": ")", format, '"'),
        str("checkpoint_format': expected \"gptq\", \"gptq_v2\" or \"marlin\", got \"", format,
            "\". "));
  }
  expect_error<UnsupportedError>(R"("bits": 4, "group_size": 128, "format": "gemv")",
                                 "format': expected \"gptq\", \"gptq_v2\" or \"marlin\", got "
                                 "\"gemv\". These are AWQ layouts: state quant_method awq");
  expect_error<InputError>(
      R"("bits": 4, "group_size": 128, "checkpoint_format": "gptq", "is_marlin_format": true)",
      "checkpoint_format': expected \"marlin\", since");
}

TEST(GptqSettings, RejectsWhatTilesCannotHold) {
  const std::string tiles = R"("checkpoint_format": "marlin", "group_size": 128, )";
  expect_error<UnsupportedError>(tiles + R"("bits": 8)", "bits': expected 4, got 8. Marlin");
  expect_error<UnsupportedError>(tiles + R"("bits": 4, "sym": false)",
                                 "sym': expected true, got false. Marlin");
  expect_error<UnsupportedError>(tiles + R"("bits": 4, "desc_act": true)",
                                 "desc_act': expected false, got true. Marlin");
  expect_error<UnsupportedError>(tiles + R"("bits": 4, "dynamic": {"a": {"bits": 8}})",
                                 "dynamic.a.bits': expected 4, got 8. Marlin");
}

TEST(GptqSettings, TakesTheFirstRuleThatMatchesFromTheStart) {
  const std::string rules = R"(, "sym": true, "dynamic": {
      "z": {"bits": 2}, "q_proj": {"bits": 2}, "-:.*o_proj": {}, "+:.*down": {"bits": 8,
      "group_size": 64, "desc_act": true, "sym": false, "damp_percent": 0.1},
      ".*down_proj": {"bits": 3}, "+:.*o_proj": {"bits": 2}, ".*up": null})";
  EXPECT_EQ(layer_of(rules, "m.q_proj").settings.bits, 4);
  const auto down = layer_of(rules, "m.down_proj");
  EXPECT_EQ(down.settings.bits, 8);
  EXPECT_EQ(down.settings.group_size, 64);
  EXPECT_EQ(down.settings.has_act_order, true);
  EXPECT_EQ(down.settings.is_symmetric, false);
  EXPECT_EQ(down.says, ConfigSays::kQuantized);
  const auto out = layer_of(rules, "m.o_proj");
  EXPECT_EQ(out.says, ConfigSays::kDense);
  EXPECT_EQ(out.because, "field 'quantization_config.dynamic' holds \"-:.*o_proj\"");
  EXPECT_EQ(layer_of(rules, "m.up").settings.bits, 4);
}

TEST(GptqSettings, RejectsBadRules) {
  const std::string start = R"("bits": 4, "group_size": 128, "dynamic": )";
  expect_error<InputError>(start + "[]", "dynamic': expected an object");
  expect_error<InputError>(start + R"({".*": 4})", "dynamic..*': expected an object, got 4.");
  expect_error<InputError>(start + R"({"-:(": {}})", "dynamic.\"-:(\"': expected a regular");
  expect_error<UnsupportedError>(start + R"({"a": {"bits": 7}})",
                                 "dynamic.a.bits': expected 2, 3, 4 or 8, got 7.");
  expect_error<InputError>(start + R"({"a": {"group_size": 0}})", "dynamic.a.group_size'");
  expect_error<UnsupportedError>(start + R"({"a": {"adapter": 1}})",
                                 "dynamic.\"a\"': expected the keys bits, group_size, desc_act and "
                                 "sym, got \"adapter\".");
}

TEST(GptqSettings, LeavesOutWhatIsNotListed) {
  const std::string lists =
      R"(, "modules_in_block_to_quantize": [["self_attn.q_proj", "self_attn.k_proj"], ["up"]])";
  EXPECT_EQ(layer_of(lists, "m.self_attn.q_proj").says, ConfigSays::kQuantized);
  EXPECT_EQ(layer_of(lists, "m.up").says, ConfigSays::kQuantized);
  for (const char* name : {"m.x_up", "m.self_attn.v_proj"}) {
    const auto layer = layer_of(lists, name);
    EXPECT_EQ(layer.says, ConfigSays::kDense);
    EXPECT_EQ(layer.because,
              "field 'quantization_config.modules_in_block_to_quantize' does not list it");
  }
  EXPECT_EQ(layer_of(lists, "lm_head", true).says, ConfigSays::kEither);
  for (const char* wrong : {"\"up\"", "[1]", "[[1]]", "[[[]]]"}) {
    expect_error<InputError>(
        str(R"("bits": 4, "group_size": 128, "modules_in_block_to_quantize": )", wrong),
        "modules_in_block_to_quantize': expected a list of lists of module names");
  }
}

TEST(GptqSettings, KnowsLayersThatAreUsuallyDense) {
  EXPECT_EQ(layer_of("", "lm_head", true).says, ConfigSays::kEither);
  EXPECT_EQ(layer_of("", "m.gate", true).says, ConfigSays::kEither);
  EXPECT_EQ(layer_of(R"(, "lm_head": true)", "lm_head", true).says, ConfigSays::kQuantized);
  const auto dense = layer_of(R"(, "lm_head": false)", "model.lm_head", true);
  EXPECT_EQ(dense.says, ConfigSays::kDense);
  EXPECT_EQ(dense.because, "field 'quantization_config.lm_head' is false");
  EXPECT_EQ(layer_of(R"(, "lm_head": false)", "m.q_proj").says, ConfigSays::kQuantized);
}

}  // namespace
}  // namespace halley
