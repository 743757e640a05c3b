// FP8 checkpoints: fields, tensors, and every rejection.
#include "halley/quant/fp8/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

std::unique_ptr<QuantScheme> detect(const std::string& fields) {
  const HfConfig config =
      HfConfig::parse(str(R"({"quantization_config": )", fields, "}"), "config.json");
  const MemoryTensors tensors;
  return kQuantFp8.detect(read_quant_config(config, {}), tensors);
}

std::unique_ptr<QuantScheme> detect_fp8(const std::string& more) {
  return detect(str(R"({"quant_method": "fp8", )", more, "}"));
}

std::unique_ptr<QuantScheme> detect_modelopt(const std::string& more) {
  return detect(str(R"({"quant_method": "modelopt", )", more, "}"));
}

constexpr const char* kDynamic = R"("activation_scheme": "dynamic")";
constexpr const char* kStatic = R"("activation_scheme": "static")";

/// A layer "m.a" of 4 outputs and 8 inputs with a per-tensor scale.
MemoryTensors one_layer() {
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight", DType::kF8E4M3, {4, 8}).fill("m.a.weight_scale", {}, 0.5f);
  return tensors;
}

WeightDesc open_desc(const QuantScheme& scheme, const MemoryTensors& tensors) {
  return scheme.open(tensors, whole_part("m.a", 4), 8)->desc();
}

template <typename Error>
void expect_open_fails(const QuantScheme& scheme, const MemoryTensors& tensors,
                       const std::string& text) {
  EXPECT_THAT([&] { open_desc(scheme, tensors); }, ThrowsMessage<Error>(HasSubstr(text)));
}

TEST(Fp8Golden, WeightsAreThoseOfTheIndependentReader) {
  for (const char* name : {"fp8_tensor_dynamic", "fp8_tensor_static", "fp8_channel", "fp8_block",
                           "fp8_block_e8m0", "fp8_ignored_layers", "fp8_modelopt"}) {
    expect_golden_weights(kQuantFp8, name);
  }
}

TEST(Fp8Golden, CheckpointsDeclareTheirCacheAndActivations) {
  const GoldenCheckpoint golden("fp8_modelopt");
  const auto scheme = kQuantFp8.detect(golden.quant, *golden.source);
  EXPECT_EQ(scheme->declared_kv(), DeclaredKv::kFp8Static);
  EXPECT_EQ(scheme->summary(),
            "ModelOpt, 8-bit floats (e4m3), per-tensor or per-channel scales, activations "
            "e4m3_static");
  EXPECT_THAT(scheme->warnings(), IsEmpty());
}

TEST(Fp8Detect, LeavesOtherMethodsAlone) {
  EXPECT_EQ(detect(R"({"quant_method": "gptq"})"), nullptr);
  const MemoryTensors tensors;
  EXPECT_EQ(kQuantFp8.detect({}, tensors), nullptr);
}

TEST(Fp8Detect, ReadsActivationsAndBlocks) {
  const auto activation = [](const std::string& fields, const char* scale, const Shape& shape) {
    MemoryTensors tensors = one_layer();
    tensors.remove("m.a.weight_scale");
    tensors.fill(scale, shape, 1).fill("m.a.input_scale", {}, 0.25f);
    return open_desc(*detect_fp8(fields), tensors).activation;
  };
  EXPECT_EQ(activation(kDynamic, "m.a.weight_scale", {}), ActivationQuant::kE4m3Token);
  EXPECT_EQ(activation(kStatic, "m.a.weight_scale", {1}), ActivationQuant::kE4m3Static);
  EXPECT_EQ(activation(str(kDynamic, R"(, "weight_block_size": [128, 128])"),
                       "m.a.weight_scale_inv", {1, 1}),
            ActivationQuant::kE4m3Group128);
  EXPECT_EQ(
      activation(str(kDynamic, R"(, "weight_block_size": [2, 4])"), "m.a.weight_scale_inv", {2, 2}),
      ActivationQuant::kNone);
}

TEST(Fp8Detect, WarnsWhereActivationsStayUnrounded) {
  EXPECT_THAT(
      detect_fp8(str(kDynamic, R"(, "weight_block_size": [64, 64])"))->warnings(),
      ElementsAre("config.json: field 'quantization_config.weight_block_size': activations are "
                  "rounded in groups of 128 inputs only, and the blocks have 64: they are not "
                  "rounded, which is slower and more exact."));
}

TEST(Fp8Detect, RejectsConfigurationsByFieldAndValue) {
  const auto expect_input_error = [](const std::string& fields, const std::string& text) {
    EXPECT_THAT([&] { detect_fp8(fields); }, ThrowsMessage<InputError>(HasSubstr(text)));
  };
  const auto expect_rejection = [](const std::string& fields, const std::string& text) {
    EXPECT_THAT([&] { detect_fp8(fields); }, ThrowsMessage<UnsupportedError>(HasSubstr(text)));
  };
  expect_input_error(R"("bits": 8)",
                     "config.json: field 'quantization_config.activation_scheme': expected "
                     "\"dynamic\" or \"static\", got nothing. State the one");
  expect_rejection(R"("activation_scheme": "none")",
                   "expected \"dynamic\" or \"static\", got \"none\". Quantize the model again");
  for (const char* block : {"[128]", "[0, 128]", "[128, -1]", "[1, 9223372036854775807]", "[]"}) {
    expect_input_error(str(kDynamic, R"(, "weight_block_size": )", block),
                       "field 'quantization_config.weight_block_size': expected two positive "
                       "integers, [128, 128] as a rule, got an array of ");
  }
  expect_input_error(str(kDynamic, R"(, "ignored_layers": ["re:("])"),
                     "field 'quantization_config.ignored_layers': expected a regular expression");
  expect_rejection(str(kStatic, R"(, "weight_block_size": [128, 128])"),
                   "field 'quantization_config.activation_scheme': expected \"dynamic\" with "
                   "weight_block_size, got \"static\". Quantize again with dynamic activations");
  expect_rejection(str(kDynamic, R"(, "fmt": "e5m2")"),
                   "field 'quantization_config.fmt': expected \"e4m3\", got \"e5m2\"");
  expect_rejection(str(kDynamic, R"(, "kv_cache_scheme": "dynamic")"),
                   "field 'quantization_config.kv_cache_scheme': expected \"static\", got "
                   "\"dynamic\"");
}

TEST(Fp8Detect, ReadsTheDeclaredCache) {
  EXPECT_EQ(detect_fp8(kDynamic)->declared_kv(), DeclaredKv::kNothing);
  EXPECT_EQ(detect_fp8(str(kDynamic, R"(, "kv_cache_scheme": "static")"))->declared_kv(),
            DeclaredKv::kFp8Static);
}

TEST(ModelOptDetect, ReadsBothFormsAndTwoAlgorithms) {
  MemoryTensors tensors = one_layer();
  tensors.fill("m.a.input_scale", {}, 0.25f);
  const auto nested = detect(R"({"producer": {"name": "modelopt"}, "quantization": {
      "quant_algo": "FP8", "kv_cache_quant_algo": null, "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(open_desc(*nested, tensors).activation, ActivationQuant::kE4m3Static);
  EXPECT_EQ(open_desc(*nested, tensors).activation_scale, 0.25f);
  EXPECT_EQ(nested->declared_kv(), DeclaredKv::kNothing);
  const auto flat = detect_modelopt(R"("quant_algo": "FP8_PER_CHANNEL_PER_TOKEN",
      "ignore": ["lm_head"], "kv_cache_scheme": {"num_bits": 8, "type": "float"})");
  tensors.fill("m.a.weight_scale", {4}, 1);
  EXPECT_EQ(open_desc(*flat, tensors).activation, ActivationQuant::kE4m3Token);
  EXPECT_EQ(flat->declared_kv(), DeclaredKv::kFp8Static);
}

TEST(ModelOptDetect, ReadsNvfp4) {
  const auto scheme = detect_modelopt(R"("quant_algo": "NVFP4", "group_size": 16)");
  ASSERT_EQ(scheme->warnings().size(), 1U);
  EXPECT_THAT(scheme->warnings()[0], HasSubstr("activations are not rounded"));
  MemoryTensors tensors;
  tensors.add_bytes("m.weight", DType::kU8, {4, 16});
  tensors.add_bytes("m.weight_scale", DType::kF8E4M3, {4, 2});
  tensors.fill("m.weight_scale_2", {}, 0.5f);
  tensors.fill("m.input_scale", {}, 0.5f);
  const auto weight = scheme->open(tensors, whole_part("m", 4), 32);
  EXPECT_EQ(weight->desc().layout, PackedLayout::kE2m1Quad);
  EXPECT_EQ(weight->desc().group_size, 16);
  EXPECT_EQ(weight->desc().tensor_names.size(), 4U);
}

TEST(ModelOptDetect, RejectsOtherAlgorithmsByName) {
  for (const char* algorithm :
       {"W4A16_AWQ", "W4A8_AWQ", "MXFP8", "FP8_PB_WO", "MIXED_PRECISION", "fp8"}) {
    EXPECT_THAT(
        [&] { detect_modelopt(str(R"("quant_algo": ")", algorithm, "\"")); },
        ThrowsMessage<UnsupportedError>(AllOf(
            HasSubstr(str("config.json: field 'quantization_config.quant_algo': expected \"FP8\", "
                          "\"FP8_PER_CHANNEL_PER_TOKEN\" or \"NVFP4\", got \"",
                          algorithm, "\". ")),
            HasSubstr("Export the model from ModelOpt as FP8"))));
  }
  EXPECT_THAT([] { detect_modelopt(R"("quantization": {"exclude_modules": []})"); },
              ThrowsMessage<InputError>(HasSubstr(
                  "field 'quantization_config.quantization.quant_algo': expected ModelOpt's name "
                  "of the algorithm, got nothing. State it: \"FP8\".")));
  EXPECT_THAT(
      [] { detect_modelopt(R"("quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4")"); },
      ThrowsMessage<UnsupportedError>(HasSubstr(
          "field 'quantization_config.kv_cache_quant_algo': expected \"FP8\", got \"NVFP4\"")));
}

/// The error of opening full-precision or quantized tensors of the layer, or nothing.
std::string rejection_of(const std::string& fields, const std::string& layer, bool is_quantized) {
  MemoryTensors tensors;
  tensors.add_bytes(layer + ".weight", is_quantized ? DType::kF8E4M3 : DType::kF16, {4, 8});
  if (is_quantized) tensors.fill(layer + ".weight_scale", {}, 1);
  try {
    detect(fields)->open(tensors, whole_part(layer, 4), 8);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

std::string ignoring(const std::string& entries) {
  return str(R"({"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": [)",
             entries, "]}");
}

TEST(Fp8Agreement, ListsAndTensorsMustSayTheSame) {
  EXPECT_EQ(rejection_of(ignoring(R"("lm_head")"), "m.0.mlp.up_proj", true), "");
  EXPECT_EQ(rejection_of(ignoring(R"("lm_head")"), "m.0.mlp.up_proj", false),
            "model: layer \"m.0.mlp.up_proj\": expected quantized tensors, since field "
            "'quantization_config.ignored_layers' does not name it, got full-precision ones. "
            "Correct the configuration.");
  for (const char* entry : {"m.0.mlp.up_proj", "m.0", "up_proj", "0.mlp", "re:.*up_proj$",
                            "*.mlp.*", "m.0*", "re:m\\\\.0$"}) {
    const std::string fields = ignoring(str('"', entry, '"'));
    EXPECT_EQ(rejection_of(fields, "m.0.mlp.up_proj", false), "") << entry;
    EXPECT_THAT(rejection_of(fields, "m.0.mlp.up_proj", true),
                AllOf(HasSubstr("expected full-precision tensors, since field "
                                "'quantization_config.ignored_layers' holds \""),
                      HasSubstr("got quantized ones")))
        << entry;
  }
}

TEST(Fp8Agreement, PartsOfNamesLeaveItToTheTensors) {
  for (const bool is_quantized : {false, true}) {
    EXPECT_EQ(rejection_of(ignoring(R"("mlp.gate")"), "m.1.mlp.gate_proj", is_quantized), "");
    EXPECT_EQ(rejection_of(ignoring(R"("m.1")"), "m.10.mlp.up_proj", is_quantized), "");
  }
}

TEST(Fp8Agreement, ModelOptListsAreReadToo) {
  const std::string fields = R"({"quant_method": "modelopt",
      "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "ignore": ["*router*", "lm_head"]})";
  EXPECT_EQ(rejection_of(fields, "m.0.router.w", false), "");
  EXPECT_THAT(rejection_of(fields, "lm_head", true),
              HasSubstr("since field 'quantization_config.ignore' holds \"lm_head\""));
}

TEST(Fp8Agreement, LayersThatAreUsuallyDenseMayBeEither) {
  MemoryTensors tensors;
  tensors.add_bytes("lm_head.weight", DType::kF16, {4, 8});
  LinearSpec::Part part = whole_part("lm_head", 4);
  part.is_usually_dense = true;
  const auto scheme = detect_fp8(kDynamic);
  EXPECT_EQ(scheme->open(tensors, part, 8)->desc().layout, PackedLayout::kF16Panel);
  tensors.add_bytes("lm_head.weight", DType::kF8E4M3, {4, 8}).fill("lm_head.weight_scale", {}, 1);
  EXPECT_EQ(scheme->open(tensors, part, 8)->desc().layout, PackedLayout::kF8E4M3Quad);
  EXPECT_EQ(scheme->expected_tensors(part, 8)[0].dtype, DType::kF16);
}

TEST(Fp8Open, ReadsScalesPerTensorFeatureAndBlock) {
  MemoryTensors tensors = one_layer();
  const auto scheme = detect_fp8(kDynamic);
  const auto first_of = [&] {
    return dequantized(*scheme->open(tensors, whole_part("m.a", 4), 8), 4, 8);
  };
  const auto per_tensor = first_of();
  for (const Shape& shape : {Shape{4}, Shape{4, 1}}) {
    tensors.add<float>("m.a.weight_scale", DType::kF32, shape, {0.5f, 1.0f, -2.0f, 0.25f});
    auto expected = per_tensor;
    for (size_t i = 0; i < 8; ++i) {
      expected[8 + i] *= 2;
      expected[16 + i] *= -4;
      expected[24 + i] *= 0.5f;
    }
    EXPECT_EQ(first_of(), expected);
  }
}

TEST(Fp8Open, ReadsTheNamesOfTransformers) {
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight", DType::kF8E4M3, {4, 8}).fill("m.a.weight_scale_inv", {}, 0.5f);
  tensors.fill("m.a.activation_scale", {}, 0.125f);
  const WeightDesc desc = open_desc(*detect_fp8(kStatic), tensors);
  EXPECT_EQ(desc.activation_scale, 0.125f);
  EXPECT_THAT(desc.tensor_names,
              ElementsAre("m.a.weight", "m.a.weight_scale_inv", "m.a.activation_scale"));
}

TEST(Fp8Open, TakesPowerOfTwoScalesOfBlocks) {
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight", DType::kF8E4M3, {4, 8});
  tensors.add<uint8_t>("m.a.weight_scale_inv", DType::kF8E8M0, {1, 2}, {127, 128});
  const auto scheme = detect_fp8(str(kDynamic, R"(, "weight_block_size": [128, 4])"));
  const auto weight = scheme->open(tensors, whole_part("m.a", 4), 8);
  float groups[128] = {};
  weight->read_groups(0, 1, groups);
  EXPECT_EQ(groups[0], 1.0f);
  EXPECT_EQ(groups[64], 2.0f);
  tensors.add<uint8_t>("m.a.weight_scale_inv", DType::kF8E8M0, {1, 2}, {127, 255});
  const auto bad = scheme->open(tensors, whole_part("m.a", 4), 8);
  EXPECT_THAT([&] { bad->check_data(); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "tensor \"m.a.weight_scale_inv\": expected finite numbers other than zero, got "
                  "nan at [0, 1]")));
}

TEST(Fp8Open, NeverMakesUpAScale) {
  MemoryTensors tensors = one_layer();
  const auto fixed = detect_fp8(kStatic);
  expect_open_fails<CheckpointError>(
      *fixed, tensors, "tensor \"m.a.input_scale\": expected a tensor of shape [1], got none");
  tensors.fill("m.a.input_scale", {}, 0);
  expect_open_fails<CheckpointError>(
      *fixed, tensors, "\"m.a.input_scale\": expected a finite number of at least 2^-100, got 0.");
  tensors.remove("m.a.weight_scale");
  expect_open_fails<CheckpointError>(
      *detect_fp8(kDynamic), tensors,
      "tensor \"m.a.weight_scale\": expected a tensor of shape [1, 1], got none");
  expect_open_fails<CheckpointError>(
      *detect_fp8(str(kDynamic, R"(, "weight_block_size": [2, 4])")), tensors,
      "tensor \"m.a.weight_scale_inv\": expected a tensor of shape [2, 2], got none");
}

TEST(Fp8Open, RejectsOtherTypesAndShapesByName) {
  const auto scheme = detect_fp8(kDynamic);
  for (const DType dtype : {DType::kF8E5M2, DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz}) {
    MemoryTensors tensors = one_layer();
    tensors.add_bytes("m.a.weight", dtype, {4, 8});
    expect_open_fails<UnsupportedError>(
        *scheme, tensors,
        str("model: tensor \"m.a.weight\": expected type f8_e4m3, got ", dtype,
            ". Quantize the model again to e4m3."));
  }
  MemoryTensors tensors = one_layer();
  tensors.add_bytes("m.a.weight", DType::kI8, {4, 8});
  expect_open_fails<CheckpointError>(*scheme, tensors, "expected type f8_e4m3, got i8");
  tensors.add_bytes("m.a.weight", DType::kF8E4M3, {4, 16});
  expect_open_fails<CheckpointError>(*scheme, tensors, "expected shape [4, 8], got [4, 16]");
  tensors = one_layer();
  tensors.fill("m.a.weight_scale", {2}, 1);
  expect_open_fails<CheckpointError>(*scheme, tensors,
                                     "\"m.a.weight_scale\": expected shape [4, 1], got [2]");
  tensors.add_bytes("m.a.weight", DType::kF16, {4, 8});
  LinearSpec::Part part = whole_part("m.a", 4);
  part.is_usually_dense = true;
  EXPECT_THAT([&] { scheme->open(tensors, part, 8); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "tensor \"m.a.weight\": expected codes, since \"m.a.weight_scale\" is there")));
}

TEST(Fp8Open, RejectsQuantizedFusedExpertsAndTakesDenseOnes) {
  const LinearSpec::Part part = {
      .name = "e.w", .out_features = 4, .stored_rows = 4, .expert = 1, .num_stored_experts = 2};
  const auto scheme = detect_fp8(kDynamic);
  MemoryTensors tensors;
  tensors.add_bytes("e.w", DType::kBf16, {2, 4, 8});
  EXPECT_EQ(scheme->open(tensors, part, 8)->desc().layout, PackedLayout::kBf16PairPanel);
  tensors.add_bytes("e.w", DType::kF8E4M3, {2, 4, 8});
  EXPECT_THAT([&] { scheme->open(tensors, part, 8); },
              ThrowsMessage<UnsupportedError>(HasSubstr("expected fused experts in full")));
}

TEST(Fp8Open, ExpectedTensorsCanBeOpened) {
  for (const char* fields :
       {kDynamic, kStatic, R"("activation_scheme": "dynamic", "weight_block_size": [3, 5])"}) {
    const auto scheme = detect_fp8(fields);
    MemoryTensors tensors;
    for (const TensorInfo& info : scheme->expected_tensors(whole_part("m.a", 4), 8)) {
      if (info.dtype == DType::kF32) {
        tensors.fill(info.name, info.shape, 1);
      } else {
        tensors.add_bytes(info.name, info.dtype, info.shape);
      }
    }
    EXPECT_EQ(open_desc(*scheme, tensors).tensor_names.size(), tensors.tensors().size()) << fields;
  }
}

}  // namespace
}  // namespace halley
