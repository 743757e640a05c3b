// Checkpoints of compressed-tensors: goldens, storages, and agreement of targets and tensors.
#include "halley/quant/compressed_tensors/compressed_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::unique_ptr<QuantScheme> detect(const std::string& fields) {
  const HfConfig config =
      HfConfig::parse(str(R"({"quantization_config": )", fields, "}"), "config.json");
  const MemoryTensors tensors;
  return kQuantCompressedTensors.detect(read_quant_config(config, {}), tensors);
}

/// One group for all linear layers but lm_head.
std::unique_ptr<QuantScheme> scheme_of(const std::string& format, const std::string& weights,
                                       const std::string& inputs = "null") {
  return detect(str(R"({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "format": ")",
                    format,
                    R"(", "config_groups": {"group_0": {"targets": ["Linear"], "weights": {)",
                    weights, R"(}, "input_activations": )", inputs, "}}}"));
}

constexpr const char* kInt8 = R"("num_bits": 8, "type": "int", "strategy": "channel")";
constexpr const char* kFloat8 = R"("num_bits": 8, "type": "float", "strategy": "tensor")";
constexpr const char* kStatic8 = R"({"num_bits": 8, "type": "int", "strategy": "tensor"})";

MemoryTensors int8_layer() {
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight", DType::kI8, {4, 8});
  tensors.add<float>("m.a.weight_scale", DType::kF32, {4, 1}, {0.5f, 1, -2, 4});
  return tensors;
}

std::unique_ptr<StoredWeight> open_layer(const QuantScheme& scheme, const MemoryTensors& tensors) {
  return scheme.open(tensors, whole_part("m.a", 4), 8);
}

void expect_open_fails(const QuantScheme& scheme, const MemoryTensors& tensors,
                       const std::string& text) {
  EXPECT_THAT([&] { open_layer(scheme, tensors); },
              ThrowsMessage<CheckpointError>(HasSubstr(text)));
}

TEST(CompressedGolden, WeightsAreThoseOfTheIndependentReader) {
  for (const char* name :
       {"ct_2bit_g64_sym", "ct_3bit_g128_asym_dense", "ct_3bit_g64_asym_padded",
        "ct_4bit_channel_sym", "ct_4bit_g128_sym", "ct_4bit_g32_actorder_group", "ct_4bit_g32_asym",
        "ct_4bit_g64_actorder_weight", "ct_8bit_g128_sym", "ct_fp8_channel_token", "ct_fp8_static",
        "ct_int8_static", "ct_int8_token", "ct_kv_cache", "ct_mixed"}) {
    expect_golden_weights(kQuantCompressedTensors, name);
  }
}

TEST(CompressedGolden, CheckpointsDeclareTheirCacheAndSchemes) {
  const GoldenCheckpoint golden("ct_kv_cache");
  const auto scheme = kQuantCompressedTensors.detect(golden.quant, *golden.source);
  EXPECT_EQ(scheme->declared_kv(), DeclaredKv::kFp8Static);
  EXPECT_EQ(scheme->summary(), "4 bits, group 128, symmetric");
  const GoldenCheckpoint mixed("ct_mixed");
  EXPECT_EQ(kQuantCompressedTensors.detect(mixed.quant, *mixed.source)->summary(),
            "4 bits, group 128, symmetric; 8-bit floats (e4m3), per output feature, symmetric, "
            "activations e4m3_token");
}

TEST(CompressedDetect, LeavesOtherMethodsAlone) {
  EXPECT_EQ(detect(R"({"quant_method": "gptq"})"), nullptr);
  const MemoryTensors tensors;
  EXPECT_EQ(kQuantCompressedTensors.detect({}, tensors), nullptr);
}

TEST(CompressedDetect, WithoutGroupsOnlyTheCacheIsQuantized) {
  const auto scheme = detect(R"({"quant_method": "compressed-tensors", "format": "dense",
      "kv_cache_scheme": {"num_bits": 8, "type": "float"}})");
  EXPECT_EQ(scheme->summary(), "full-precision weights");
  EXPECT_EQ(scheme->declared_kv(), DeclaredKv::kFp8Static);
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight", DType::kBf16, {4, 8});
  EXPECT_EQ(open_layer(*scheme, tensors)->desc().layout, PackedLayout::kBf16PairPanel);
}

TEST(CompressedOpen, ReadsSignedBytesWithAndWithoutZeroPoints) {
  MemoryTensors tensors = int8_layer();
  const auto* codes =
      reinterpret_cast<const int8_t*>(tensors.view(*tensors.find("m.a.weight")).data);
  const auto symmetric = open_layer(*scheme_of("int-quantized", kInt8), tensors);
  EXPECT_EQ(symmetric->desc().activation, ActivationQuant::kNone);
  const float scales[] = {0.5f, 1, -2, 4};
  const int zeros[] = {3, -7, 0, 127};
  auto values = dequantized(*symmetric, 4, 8);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(values[i], scales[i / 8] * static_cast<float>(codes[i]));
  }
  tensors.add<int8_t>("m.a.weight_zero_point", DType::kI8, {4, 1}, {3, -7, 0, 127});
  const auto asymmetric =
      open_layer(*scheme_of("int-quantized", str(kInt8, R"(, "symmetric": false)")), tensors);
  EXPECT_FALSE(asymmetric->desc().is_symmetric);
  values = dequantized(*asymmetric, 4, 8);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(values[i], scales[i / 8] * static_cast<float>(codes[i] - zeros[i / 8]));
  }
  expect_open_fails(*scheme_of("int-quantized", kInt8), tensors,
                    "tensor \"m.a.weight_zero_point\": expected zeros, since the configuration "
                    "says symmetric");
  tensors.add<int8_t>("m.a.weight_zero_point", DType::kI8, {4, 1}, {0, 0, 0, 0});
  EXPECT_EQ(dequantized(*open_layer(*scheme_of("int-quantized", kInt8), tensors), 4, 8),
            dequantized(*symmetric, 4, 8));
}

TEST(CompressedOpen, ReadsBlocksOfFloats) {
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight", DType::kF8E4M3, {4, 8}).fill("m.a.weight_scale", {2, 2}, 1);
  const auto scheme =
      scheme_of("float-quantized",
                R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": [3, 4])",
                R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
          "dynamic": true})");
  const auto weight = open_layer(*scheme, tensors);
  EXPECT_EQ(weight->desc().activation, ActivationQuant::kE4m3Group128);
  EXPECT_EQ(weight->desc().group_size, 4);
}

TEST(CompressedOpen, NeverMakesUpAScale) {
  MemoryTensors tensors = int8_layer();
  const auto scheme = scheme_of("int-quantized", kInt8, kStatic8);
  expect_open_fails(*scheme, tensors,
                    "tensor \"m.a.input_scale\": expected a tensor of shape [1], got none");
  tensors.fill("m.a.input_scale", {1}, -1);
  expect_open_fails(
      *scheme, tensors,
      "tensor \"m.a.input_scale\": expected a finite number of at least 2^-100, got -1.");
  tensors.fill("m.a.input_scale", {1}, 0.5f);
  EXPECT_EQ(open_layer(*scheme, tensors)->desc().activation_scale, 0.5f);
  tensors.add<int8_t>("m.a.input_zero_point", DType::kI8, {1}, {5});
  expect_open_fails(*scheme, tensors, "tensor \"m.a.input_zero_point\": expected zeros");
  tensors.remove("m.a.weight_scale");
  expect_open_fails(*scheme_of("int-quantized", kInt8), tensors,
                    "tensor \"m.a.weight_scale\": expected a tensor of shape [4, 1], got none");
}

TEST(CompressedOpen, RejectsTensorsOfAnotherStorage) {
  const MemoryTensors tensors = int8_layer();
  expect_open_fails(*scheme_of("float-quantized", kFloat8), tensors,
                    "tensor \"m.a.weight\": expected type f8_e4m3, got i8");
  expect_open_fails(*scheme_of("pack-quantized", R"("num_bits": 4)"), tensors,
                    "tensor \"m.a.weight_packed\": expected a tensor of shape [4, 1], got none");
}

TEST(CompressedOpen, RejectsFullPrecisionNextToCodes) {
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight_packed", DType::kI32, {4, 1}).fill("m.a.weight_scale", {1}, 1);
  const auto scheme = scheme_of("pack-quantized", R"("num_bits": 4)");
  EXPECT_NO_THROW(open_layer(*scheme, tensors));
  tensors.add_bytes("m.a.weight", DType::kF16, {4, 8});
  expect_open_fails(*scheme, tensors,
                    "model: tensor \"m.a.weight\": expected none, since weight_packed is there, "
                    "got f16 [4, 8]. Correct the configuration or the file.");
}

TEST(CompressedOpen, RejectsGroupsThatDoNotDivideTheInputs) {
  for (const char* format : {"pack-quantized", "int-quantized"}) {
    expect_open_fails(*scheme_of(format, R"("num_bits": 8, "group_size": 3)"), int8_layer(),
                      "model: layer \"m.a\": expected 'quantization_config.config_groups.group_0."
                      "weights.group_size' to divide its 8 inputs, got 3. Correct the "
                      "configuration.");
  }
}

TEST(CompressedOpen, RejectsWeightsThatAreNan) {
  MemoryTensors tensors;
  std::vector<uint8_t> codes(32, 0x40);
  codes[17] = 0xFF;
  tensors.add("m.a.weight", DType::kF8E4M3, {4, 8}, codes).fill("m.a.weight_scale", {1}, 1);
  const auto weight = open_layer(*scheme_of("float-quantized", kFloat8), tensors);
  EXPECT_THAT([&] { weight->check_data(); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "tensor \"m.a.weight\": expected numbers, got NaN (code 255) at [2, 1]")));
}

TEST(CompressedAgreement, TargetsAndTensorsMustSayTheSame) {
  const auto scheme = scheme_of("int-quantized", kInt8);
  MemoryTensors tensors;
  tensors.add_bytes("m.a.weight", DType::kF16, {4, 8});
  expect_open_fails(*scheme, tensors,
                    "model: layer \"m.a\": expected quantized tensors, since field "
                    "'quantization_config.config_groups.group_0.targets' holds \"Linear\", got "
                    "full-precision ones. Correct the configuration.");
  tensors.add_bytes("lm_head.weight", DType::kI8, {4, 8}).fill("lm_head.weight_scale", {4, 1}, 1);
  EXPECT_THAT([&] { scheme->open(tensors, whole_part("lm_head", 4), 8); },
              ThrowsMessage<CheckpointError>(
                  "model: layer \"lm_head\": expected full-precision tensors, since field "
                  "'quantization_config.ignore' holds \"lm_head\", got quantized ones. Correct the "
                  "configuration."));
  const auto other = detect(R"({"quant_method": "compressed-tensors", "format": "int-quantized",
      "config_groups": {"g": {"targets": ["m.b"], "weights": {"num_bits": 8}}}})");
  expect_open_fails(*other, int8_layer(),
                    "expected full-precision tensors, since no target in field "
                    "'quantization_config.config_groups' names it, got quantized ones");
  LinearSpec::Part part = whole_part("m.a", 4);
  part.is_usually_dense = true;
  EXPECT_EQ(scheme->open(tensors, part, 8)->desc().layout, PackedLayout::kF16Panel);
  EXPECT_EQ(scheme->open(int8_layer(), part, 8)->desc().layout, PackedLayout::kU8Quad);
  tensors.fill("m.a.weight_scale", {4, 1}, 1);
  EXPECT_THAT([&] { scheme->open(tensors, part, 8); },
              ThrowsMessage<CheckpointError>(HasSubstr("tensor \"m.a.weight\": expected codes")));
}

TEST(CompressedOpen, RejectsQuantizedFusedExpertsAndTakesDenseOnes) {
  const LinearSpec::Part part = {
      .name = "e.w", .out_features = 4, .stored_rows = 4, .expert = 1, .num_stored_experts = 2};
  const auto scheme = scheme_of("int-quantized", kInt8);
  MemoryTensors tensors;
  tensors.add_bytes("e.w", DType::kBf16, {2, 4, 8});
  EXPECT_EQ(scheme->open(tensors, part, 8)->desc().layout, PackedLayout::kBf16PairPanel);
  tensors.add_bytes("e.w_packed", DType::kI32, {2, 4, 1});
  EXPECT_THAT([&] { scheme->open(tensors, part, 8); },
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "tensor \"e.w_packed\": expected fused experts in full precision, got i32")));
}

TEST(CompressedOpen, ExpectedTensorsCanBeOpened) {
  const std::unique_ptr<QuantScheme> schemes[] = {
      scheme_of("int-quantized", str(kInt8, R"(, "symmetric": false)"), kStatic8),
      scheme_of("float-quantized", kFloat8),
      scheme_of("pack-quantized", R"("num_bits": 4, "group_size": 4, "symmetric": false)",
                kStatic8),
      scheme_of("pack-quantized", R"("num_bits": 8, "strategy": "tensor")")};
  for (const auto& scheme : schemes) {
    MemoryTensors tensors;
    for (const TensorInfo& info : scheme->expected_tensors(whole_part("m.a", 4), 8)) {
      if (info.dtype == DType::kF32) {
        tensors.fill(info.name, info.shape, 0.5f);
      } else {
        tensors.add_bytes(info.name, info.dtype, info.shape);
      }
    }
    EXPECT_THAT(open_layer(*scheme, tensors)->desc().tensor_names.size(), tensors.tensors().size());
    EXPECT_EQ(scheme->expected_tensors(whole_part("lm_head", 4), 8)[0].name, "lm_head.weight");
  }
}

}  // namespace
}  // namespace halley
