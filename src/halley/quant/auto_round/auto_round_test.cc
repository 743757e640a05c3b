// AutoRound's declaration: what it becomes, and every rejection.
#include "halley/quant/auto_round/auto_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::optional<QuantConfig> translate(const std::string& fields,
                                     const std::string& method = "auto-round") {
  const HfConfig config =
      HfConfig::parse(str(R"({"quantization_config": {"quant_method": ")", method,
                          R"(", "bits": 4, "group_size": 128)", fields, "}}"),
                      "config.json");
  return translate_auto_round(read_quant_config(config, {}));
}

std::string text_of(const std::string& fields) { return translate(fields)->fields->json().dump(); }

TEST(AutoRound, PackingsAreThoseOfGptqAndAwq) {
  const auto format_of = [](const std::string& packing) {
    const auto config = translate(str(R"(, "packing_format": ")", packing, "\""));
    return str(config->method, " ", config->fields->string_or("checkpoint_format", "none"));
  };
  EXPECT_EQ(format_of("auto_round:auto_gptq"), "gptq gptq");
  EXPECT_EQ(format_of("auto_round:auto_awq"), "awq none");
  EXPECT_EQ(format_of("auto_round"), "gptq gptq_v2");
  EXPECT_EQ(format_of("auto_round:gptqmodel"), "gptq gptq_v2");
  EXPECT_EQ(format_of("auto_round:exllamav2"), "gptq gptq_v2");
  EXPECT_EQ(translate("")->fields->string("checkpoint_format"), "gptq_v2");
  EXPECT_EQ(
      translate(R"(, "backend": "auto_round:gptq:exllamav2")")->fields->string("checkpoint_format"),
      "gptq");
  EXPECT_EQ(translate("", "intel/auto-round")->method, "gptq");
  EXPECT_FALSE(translate("", "gptq").has_value());
  EXPECT_FALSE(translate_auto_round({}).has_value());
}

TEST(AutoRound, SettingsOfLayersAreRulesNamesBeforeExpressions) {
  EXPECT_EQ(text_of(R"(, "sym": false, "data_type": "int", "act_bits": 16, "extra_config": {
                    ".*k_proj.*": {"bits": 16},
                    "model.layers.0.mlp.up_proj": {"bits": 8, "group_size": 64, "sym": true},
                    "lm_head": {"bits": 4, "data_type": "int", "act_bits": 16},
                    "m.unset": null})"),
            R"({"bits":4,"checkpoint_format":"gptq_v2","dynamic":{)"
            R"("+:^lm_head$":{"bits":4},)"
            R"("+:^model\\.layers\\.0\\.mlp\\.up_proj$":{"bits":8,"group_size":64,"sym":true},)"
            R"("-:.*k_proj.*":{}},"group_size":128,"lm_head":true,"quant_method":"gptq",)"
            R"("sym":false})");
  const auto config = translate(R"(, "extra_config": {".*a.*": {"bits": 16}, "m.a": {"bits": 8}})");
  EXPECT_EQ(config->fields->object("dynamic")->member_names(),
            (std::vector<std::string>{"+:^m\\.a$", "-:.*a.*"}));
}

TEST(AutoRound, AwqLeavesOutLayersByName) {
  EXPECT_EQ(text_of(R"(, "packing_format": "auto_round:auto_awq", "extra_config": {
                    ".*k_proj.*": {"bits": 16}, "m.k_proj": {"bits": 16}})"),
            R"({"bits":4,"group_size":128,"modules_to_not_convert":["m.k_proj"],)"
            R"("quant_method":"awq","version":"gemm","zero_point":true})");
  EXPECT_THAT(
      [] {
        translate(
            R"(, "packing_format": "auto_round:auto_awq", "extra_config": {"m.a": {"bits": 8}})");
      },
      ThrowsMessage<UnsupportedError>(
          HasSubstr("config.json: field 'quantization_config.extra_config.m.a': expected "
                    "the name of a layer of 16 bits")));
}

TEST(AutoRound, RejectsOtherLayoutsTypesAndActivations) {
  const auto expect_rejected = [](const std::string& fields, const std::string& text) {
    EXPECT_THAT([&] { translate(fields); },
                ThrowsMessage<UnsupportedError>(
                    HasSubstr(str("config.json: field 'quantization_config.", text))));
  };
  for (const char* packing :
       {"auto_round:fp8_static", "auto_round:mlx", "auto_round:llm_compressor"}) {
    expect_rejected(str(R"(, "packing_format": ")", packing, "\""),
                    str("packing_format': expected \"auto_round\", \"auto_round:auto_gptq\" or "
                        "\"auto_round:auto_awq\", got \"",
                        packing, "\". Export the model again with the tool's format"));
  }
  expect_rejected(R"(, "backend": "other")", "backend': expected \"auto_round\"");
  expect_rejected(R"(, "data_type": "nv_fp")", "data_type': expected \"int\", got \"nv_fp\".");
  expect_rejected(R"(, "act_bits": 8)", "act_bits': expected 16, got 8.");
  expect_rejected(R"(, "super_bits": 6)", "super_bits': expected nothing, got 6.");
  expect_rejected(R"(, "rotation_config": {"a": 1})",
                  "rotation_config': expected nothing, got an object of 1.");
  expect_rejected(R"(, "extra_config": {"m.a": {"bits": 4, "data_type": "mx_fp"}})",
                  "extra_config.m.a.data_type': expected \"int\", got \"mx_fp\".");
}

}  // namespace
}  // namespace halley
