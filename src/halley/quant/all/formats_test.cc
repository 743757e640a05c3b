#include "halley/quant/all/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/quant/base/linear_loader.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {
namespace {

std::unique_ptr<QuantScheme> detect(const std::string& config) {
  const auto source = make_dummy_weights({});
  return detect_quant_scheme(read_quant_config(HfConfig::parse(config, "config.json"), {}),
                             *source);
}

TEST(QuantFormats, PlainCheckpointIsOfFormatNone) {
  EXPECT_STREQ(detect("{}")->format_name(), "none");
  EXPECT_STREQ(detect(R"({"quantization_config": null})")->format_name(), "none");
}

TEST(QuantFormats, UnknownQuantizationIsRejectedByName) {
  EXPECT_THAT([] { detect(R"({"quantization_config": {"quant_method": "hq\nq"}})"); },
              testing::ThrowsMessage<UnsupportedError>(testing::AllOf(
                  testing::StartsWith("config.json: field 'quantization_config.quant_method': "
                                      "expected one of none, "),
                  testing::EndsWith("got \"hq\\nq\". Use another quantization of this model, or "
                                    "the unquantized one."))));
}

TEST(QuantFormats, AutoRoundIsGptqOrAwq) {
  const auto name_of = [](const std::string& more) {
    return std::string(detect(str(R"({"quantization_config": {"quant_method": "auto-round", )",
                                  R"("bits": 4, "group_size": 32)", more, "}}"))
                           ->format_name());
  };
  EXPECT_EQ(name_of(""), "gptq");
  EXPECT_EQ(name_of(R"(, "packing_format": "auto_round:auto_awq")"), "awq");
}

TEST(QuantFormats, DeclarationWithoutMethodNamesTheField) {
  EXPECT_THAT([] { detect(R"({"quantization_config": {"group_size": 4}})"); },
              testing::ThrowsMessage<InputError>(testing::StartsWith(
                  "config.json: field 'quantization_config.quant_method': expected the name of a "
                  "quantization method, got nothing")));
}

TensorInfo weight_info(const std::string& name, DType dtype) {
  return {.name = name + ".weight", .dtype = dtype, .shape = {32, 32}};
}

/// Weights of 3 bits whose activations are rounded to s8, which no kernel of the CPU runs.
TEST(QuantFormats, WeightsWithoutACpuKernelArePlannedForAnotherDevice) {
  const auto scheme = detect(R"({"quantization_config": {
      "quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"g": {
        "targets": ["Linear"],
        "weights": {"num_bits": 3, "type": "int", "symmetric": true, "strategy": "group",
                    "group_size": 128},
        "input_activations": {"num_bits": 8, "type": "int", "symmetric": true,
                              "strategy": "token", "dynamic": true}}}}})");
  const LinearSpec::Part part = {.name = "model.a", .out_features = 64, .stored_rows = 64};
  const LinearSpec spec = {.parts = {part}, .in_features = 256};
  const auto source = make_dummy_weights(scheme->expected_tensors(part, spec.in_features));
  const KernelDemands demands;
  LinearLoading loading = {.scheme = *scheme, .source = *source, .demands = demands};
  EXPECT_THAT([&] { plan_linear(loading, spec); },
              testing::ThrowsMessage<UnsupportedError>(testing::HasSubstr(
                  "layer \"model.a\": gemm: expected a kernel for a u3_quad weight")));
  loading.has_cpu_kernels = false;
  const auto plans = plan_linear(loading, spec);
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].kernel, nullptr);
  EXPECT_EQ(plans[0].weight.layout, PackedLayout::kU3Quad);
  EXPECT_GT(plans[0].packed_bytes, 0U);
}

TEST(QuantFormats, OverridesAreTriedInOrder) {
  const auto source = make_dummy_weights({weight_info("model.a", DType::kF16)});
  const auto scheme = detect_quant_scheme(
      {}, *source, {parse_quant_override("*.a=none"), parse_quant_override("re:.*=none")});
  EXPECT_STREQ(scheme->format_name(), "mixed");
  EXPECT_EQ(scheme->summary(),
            "*.a none (full precision), re:.* none (full precision), other layers none (full "
            "precision)");
  const LinearSpec::Part part = {.name = "model.a", .out_features = 32, .stored_rows = 32};
  EXPECT_EQ(scheme->open(*source, part, 32)->desc().stored_dtype, DType::kF16);
}

TEST(QuantFormats, RejectsOverridesThatSayNothing) {
  for (const char* text : {"", "a", "=none", "a=", "a{"}) {
    EXPECT_THAT([&] { parse_quant_override(text); },
                testing::ThrowsMessage<InputError>(testing::HasSubstr(
                    "expected PATTERN=none, PATTERN={...} or PATTERN=FILE.json.")))
        << text;
  }
  EXPECT_THAT([] { parse_quant_override("re:(=none"); },
              testing::ThrowsMessage<InputError>(testing::HasSubstr(
                  "expected a regular expression, got \"re:(\": missing closing parenthesis")));
}

}  // namespace
}  // namespace halley
