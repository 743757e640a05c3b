// QoQ checkpoints: the two layouts, and every rejection.
#include "halley/quant/qoq/qoq.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::ThrowsMessage;

std::unique_ptr<QuantScheme> detect(const std::string& fields) {
  const HfConfig config =
      HfConfig::parse(str(R"({"quantization_config": )", fields, "}"), "config.json");
  const MemoryTensors tensors;
  return kQuantQoq.detect(read_quant_config(config, {}), tensors);
}

std::unique_ptr<QuantScheme> per_feature() { return detect(R"({"wbits": 4, "group_size": -1})"); }
std::unique_ptr<QuantScheme> grouped() { return detect(R"({"wbits": 4, "group_size": 128})"); }

constexpr int64_t N = 64;
constexpr int64_t K = 256;

/// A layer "a" of random codes; scales as given.
MemoryTensors one_layer(uint16_t scale, int8_t group_scale, int8_t group_zero) {
  MemoryTensors tensors;
  tensors.add_bytes("a.qweight", DType::kI8, {N, K / 2});
  tensors.add("a.s1_scales", DType::kF16, {N}, std::vector<uint16_t>(N, scale));
  tensors.add("a.s1_szeros", DType::kF16, {N}, std::vector<uint16_t>(N, f32_to_f16(0.75f)));
  tensors.add("a.s2_scales", DType::kI8, {K / 128, N}, std::vector<int8_t>(2 * N, group_scale));
  tensors.add("a.s2_zeros", DType::kI8, {K / 128, N}, std::vector<int8_t>(2 * N, group_zero));
  return tensors;
}

std::unique_ptr<StoredWeight> open_layer(const QuantScheme& scheme, const MemoryTensors& tensors) {
  return scheme.open(tensors, whole_part("a", N), K);
}

TEST(QoqGolden, WeightsAreThoseOfTheIndependentReader) {
  expect_golden_weights(kQuantQoq, "qoq_channel");
  expect_golden_weights(kQuantQoq, "qoq_g128");
}

TEST(QoqDetect, ClaimsItsMethodAndRejectsOtherSizes) {
  EXPECT_EQ(detect(R"({"quant_method": "gptq"})"), nullptr);
  const MemoryTensors tensors;
  EXPECT_EQ(kQuantQoq.detect({}, tensors), nullptr);
  EXPECT_EQ(per_feature()->summary(),
            "4 bits, per output feature, asymmetric, activations s8_token");
  EXPECT_EQ(grouped()->summary(),
            "4 bits, group 128 of 8-bit scales, asymmetric, activations s8_token");
  EXPECT_THAT([] { detect(R"({"wbits": 8, "group_size": -1})"); },
              ThrowsMessage<UnsupportedError>(
                  "config.json: field 'quantization_config.wbits': expected 4, got 8. Quantize the "
                  "model again with QServe's settings for W4A8."));
  EXPECT_THAT([] { detect(R"({"wbits": 4, "group_size": 64})"); },
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "field 'quantization_config.group_size': expected -1 or 128, got 64.")));
  EXPECT_THAT([] { detect(R"({"wbits": 4, "group_size": 0})"); },
              ThrowsMessage<InputError>(
                  HasSubstr("field 'quantization_config.group_size': expected -1 or 128, got 0.")));
  EXPECT_THAT([] { detect(R"({"wbits": 4})"); },
              ThrowsMessage<InputError>(HasSubstr("field 'quantization_config.group_size'")));
}

TEST(QoqOpen, DescribesBothLayouts) {
  const MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 3, -20);
  const auto feature = open_layer(*per_feature(), tensors);
  EXPECT_EQ(feature->desc().group_size, K);
  EXPECT_EQ(feature->desc().zero_kind, ZeroKind::kOffset);
  EXPECT_EQ(feature->desc().activation, ActivationQuant::kS8Token);
  EXPECT_DOUBLE_EQ(feature->desc().stored_bytes, N * K / 2 + 4 * N);
  EXPECT_THAT(feature->desc().tensor_names, ElementsAre("a.qweight", "a.s1_scales", "a.s1_szeros"));
  const auto group = open_layer(*grouped(), tensors);
  EXPECT_EQ(group->desc().group_size, 128);
  EXPECT_THAT(group->desc().tensor_names,
              ElementsAre("a.qweight", "a.s1_scales", "a.s2_scales", "a.s2_zeros"));
  EXPECT_THAT(group->warnings(), IsEmpty());
}

TEST(QoqOpen, TakesRowsOfAStoredTensor) {
  MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 1, 0);
  std::vector<int8_t> scales, zeros;
  for (int i = 0; i < 2 * N; ++i) {
    scales.push_back(static_cast<int8_t>(1 + i % 7));
    zeros.push_back(static_cast<int8_t>(-i % 11));
  }
  tensors.add("a.s2_scales", DType::kI8, {2, N}, scales);
  tensors.add("a.s2_zeros", DType::kI8, {2, N}, zeros);
  for (const bool is_grouped : {false, true}) {
    const auto scheme = is_grouped ? grouped() : per_feature();
    const auto whole = dequantized(*open_layer(*scheme, tensors), N, K);
    LinearSpec::Part part = whole_part("a", N);
    part.row_begin = 13;
    part.out_features = 30;
    const auto some = scheme->open(tensors, part, K);
    EXPECT_EQ(dequantized(*some, 30, K),
              std::vector<float>(whole.begin() + 13 * K, whole.begin() + 43 * K));
  }
}

TEST(QoqOpen, RejectsWeightsBeyond8Bits) {
  MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 9, -8);
  // The largest code is 15: 15 * 9 - 8 = 127.
  tensors.add("a.qweight", DType::kI8, {N, K / 2}, std::vector<int8_t>(N * K / 2, -1));
  EXPECT_NO_THROW(open_layer(*grouped(), tensors)->check_data());
  std::vector<int8_t> zeros(2 * N, -8);
  zeros[N + 5] = -7;  // column 5 is output 9 of its 32
  tensors.add("a.s2_zeros", DType::kI8, {2, N}, zeros);
  EXPECT_THAT(
      [&] { open_layer(*grouped(), tensors)->check_data(); },
      ThrowsMessage<CheckpointError>(StartsWith(
          "model: tensor \"a.s2_scales\": expected weights of 8 bits, got 128 in group 1 of "
          "output 9 (code 15, scale 9, zero -7)")));
}

TEST(QoqOpen, RejectsBadScalesByTheirIndex) {
  const auto check = [](const QuantScheme& scheme, const MemoryTensors& tensors) {
    open_layer(scheme, tensors)->check_data();
  };
  for (const uint16_t bad : {uint16_t{0}, uint16_t{0x7C00}, uint16_t{0xFE00}}) {
    MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 3, -20);
    std::vector<uint16_t> scales(N, f32_to_f16(0.5f));
    scales[7] = bad;
    tensors.add("a.s1_scales", DType::kF16, {N}, scales);
    for (const bool is_grouped : {false, true}) {
      EXPECT_THAT([&] { check(is_grouped ? *grouped() : *per_feature(), tensors); },
                  ThrowsMessage<CheckpointError>(testing::AllOf(
                      HasSubstr("model: tensor \"a.s1_scales\": expected finite numbers other "
                                "than zero, got "),
                      HasSubstr(" at [7]. The file is damaged"))));
    }
  }
  MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 3, -20);
  std::vector<uint16_t> zeros(N, 0);
  zeros[3] = 0x7E00;
  tensors.add("a.s1_szeros", DType::kF16, {N}, zeros);
  EXPECT_THAT([&] { check(*per_feature(), tensors); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("tensor \"a.s1_szeros\": expected finite numbers, got nan at [3]")));
  for (const int8_t bad : {int8_t{0}, int8_t{-3}}) {
    std::vector<int8_t> scales(2 * N, 3);
    scales[N + 33] = bad;
    tensors.add("a.s2_scales", DType::kI8, {2, N}, scales);
    EXPECT_THAT([&] { check(*grouped(), tensors); },
                ThrowsMessage<CheckpointError>(
                    HasSubstr(str("tensor \"a.s2_scales\": expected numbers above zero, got ", +bad,
                                  " at [1, 33], of output 40. The file is damaged"))));
  }
}

TEST(QoqOpen, RejectsSizesThatAreNotWholeTiles) {
  const MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 3, -20);
  EXPECT_THAT([&] { per_feature()->open(tensors, whole_part("a", 48), K); },
              ThrowsMessage<UnsupportedError>(
                  "model: tensor \"a.qweight\": expected outputs in multiples of 32 and inputs in "
                  "multiples of 32, got 48 and 256. Use another quantization of this model."));
  EXPECT_THAT(
      [&] { grouped()->open(tensors, whole_part("a", N), 192); },
      ThrowsMessage<UnsupportedError>(HasSubstr("inputs in multiples of 128, got 64 and 192.")));
}

TEST(QoqOpen, RejectsMissingAndWrongTensors) {
  MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 3, -20);
  tensors.remove("a.s2_zeros");
  EXPECT_THAT([&] { open_layer(*grouped(), tensors); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "tensor \"a.s2_zeros\": expected a tensor of shape [2, 64], got none")));
  tensors.add_bytes("a.qweight", DType::kI8, {N, K});
  EXPECT_THAT([&] { open_layer(*grouped(), tensors); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("tensor \"a.qweight\": expected shape [64, 128], got [64, 256]")));
  tensors.remove("a.qweight");
  tensors.add_bytes("a.weight", DType::kF16, {N, K});
  EXPECT_THAT([&] { open_layer(*grouped(), tensors); },
              ThrowsMessage<CheckpointError>(
                  "model: layer \"a\": expected quantized tensors, since field "
                  "'quantization_config.wbits' is 4, got full-precision ones. Correct the "
                  "configuration."));
  LinearSpec::Part part = whole_part("a", N);
  part.is_usually_dense = true;
  EXPECT_THAT([&] { grouped()->open(tensors, part, K); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "tensor \"a.weight\": expected codes, since \"a.s1_scales\" is there")));
  tensors.remove("a.s1_scales");
  EXPECT_EQ(grouped()->open(tensors, part, K)->desc().layout, PackedLayout::kF16Panel);
}

TEST(QoqOpen, ListedLayersAreInFullPrecision) {
  const auto scheme = detect(
      R"({"wbits": 4, "group_size": 128, "kv_bits": 8, "modules_to_not_convert": ["a", "b.*"]})");
  EXPECT_EQ(scheme->declared_kv(), DeclaredKv::kInt8);
  EXPECT_THAT([&] { open_layer(*scheme, one_layer(f32_to_f16(0.5f), 3, -20)); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "layer \"a\": expected full-precision tensors, since field "
                  "'quantization_config.modules_to_not_convert' holds \"a\", got quantized ones")));
  MemoryTensors tensors;
  tensors.add_bytes("b.c.weight", DType::kF16, {N, K});
  EXPECT_EQ(scheme->open(tensors, whole_part("b.c", N), K)->desc().layout, PackedLayout::kF16Panel);
  EXPECT_EQ(scheme->expected_tensors(whole_part("b.c", N), K)[0].name, "b.c.weight");
}

TEST(QoqOpen, RejectsFullPrecisionNextToCodes) {
  MemoryTensors tensors = one_layer(f32_to_f16(0.5f), 3, -20);
  tensors.add_bytes("a.weight", DType::kF16, {N, K});
  EXPECT_THAT([&] { open_layer(*grouped(), tensors); },
              ThrowsMessage<CheckpointError>(
                  "model: tensor \"a.weight\": expected none, since qweight is there, got f16 [64, "
                  "256]. Correct the configuration or the file."));
}

TEST(QoqOpen, RejectsQuantizedFusedExperts) {
  MemoryTensors tensors;
  tensors.add_bytes("e.w", DType::kI8, {2, N, K});
  const LinearSpec::Part part = {
      .name = "e.w", .out_features = N, .stored_rows = N, .expert = 0, .num_stored_experts = 2};
  EXPECT_THAT([&] { grouped()->open(tensors, part, K); },
              ThrowsMessage<UnsupportedError>(HasSubstr("tensor \"e.w\": expected fused experts")));
}

TEST(QoqOpen, ExpectedTensorsCanBeOpened) {
  for (const bool is_grouped : {false, true}) {
    const auto scheme = is_grouped ? grouped() : per_feature();
    MemoryTensors tensors;
    for (const TensorInfo& info : scheme->expected_tensors(whole_part("a", N), K)) {
      tensors.add_bytes(info.name, info.dtype, info.shape);
    }
    EXPECT_EQ(open_layer(*scheme, tensors)->desc().tensor_names.size(), is_grouped ? 4u : 3u);
  }
  LinearSpec::Part part = whole_part("lm_head", N);
  part.is_usually_dense = true;
  EXPECT_EQ(grouped()->expected_tensors(part, K)[0].name, "lm_head.weight");
}

}  // namespace
}  // namespace halley
