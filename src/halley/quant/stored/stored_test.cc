// Scale tensors, byte weights, and the messages about both.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/stored/byte_weight.h"
#include "halley/quant/stored/kv_scheme.h"
#include "halley/quant/stored/part_tensors.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<float> read_all(const MemoryTensors& tensors, const ScaleBlocks& blocks) {
  const TensorInfo& info = find_scales(
      tensors, "s", {DType::kF32, DType::kF16, DType::kBf16, DType::kF8E8M0, DType::kI8}, blocks);
  const ScaleGrid grid(tensors, info, blocks);
  std::vector<float> out(static_cast<size_t>(blocks.num_groups() * 64));
  grid.read(0, blocks.stored_rows, 0.0f, out.data());
  std::vector<float> values;
  for (int64_t r = 0; r < blocks.stored_rows; ++r) {
    for (int64_t g = 0; g < blocks.num_groups(); ++g) {
      values.push_back(out[static_cast<size_t>(g * 64 + r)]);
    }
  }
  return values;
}

TEST(ScaleGrid, ReadsEveryTypeExactly) {
  const ScaleBlocks blocks = {.stored_rows = 2, .in_features = 8, .block_rows = 1, .group_size = 8};
  MemoryTensors tensors;
  tensors.add<float>("s", DType::kF32, {2, 1}, {0.1f, -3.0f});
  EXPECT_THAT(read_all(tensors, blocks), ElementsAre(0.1f, -3.0f));
  tensors.add<uint16_t>("s", DType::kF16, {2}, {f32_to_f16(1.5f), 0x0001});
  EXPECT_THAT(read_all(tensors, blocks), ElementsAre(1.5f, 0x1p-24f));
  tensors.add<uint16_t>("s", DType::kBf16, {2, 1}, {0x3FC0, 0x0001});
  EXPECT_THAT(read_all(tensors, blocks), ElementsAre(1.5f, 0x1p-133f));
  tensors.add<uint8_t>("s", DType::kF8E8M0, {2, 1}, {0, 130});
  EXPECT_THAT(read_all(tensors, blocks), ElementsAre(0x1p-127f, 8.0f));
  tensors.add<int8_t>("s", DType::kI8, {2, 1}, {-128, 127});
  EXPECT_THAT(read_all(tensors, blocks), ElementsAre(-128.0f, 127.0f));
}

TEST(ScaleGrid, RepeatsTheValueOfABlock) {
  const ScaleBlocks blocks = {.stored_rows = 5, .in_features = 7, .block_rows = 3, .group_size = 4};
  MemoryTensors tensors;
  tensors.add<float>("s", DType::kF32, {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(read_all(tensors, blocks), ElementsAre(1, 2, 1, 2, 1, 2, 3, 4, 3, 4));
}

TEST(ScaleGrid, NamesTheShapeThatItWants) {
  const ScaleBlocks blocks = {.stored_rows = 5, .in_features = 7, .block_rows = 3, .group_size = 4};
  MemoryTensors tensors;
  EXPECT_THAT([&] { read_all(tensors, blocks); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("model: tensor \"s\": expected a tensor of shape [2, 2], got none")));
  tensors.fill("s", {5, 2}, 1);
  EXPECT_THAT([&] { read_all(tensors, blocks); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("model: tensor \"s\": expected shape [2, 2], got [5, 2]")));
  tensors.add_bytes("s", DType::kI32, {2, 2});
  EXPECT_THAT([&] { read_all(tensors, blocks); },
              ThrowsMessage<CheckpointError>(HasSubstr("expected type f32, f16")));
}

TEST(ScaleGrid, RejectsWhatIsNotFiniteOrZeroOfTheRowsAsked) {
  const ScaleBlocks blocks = {.stored_rows = 4, .in_features = 8, .block_rows = 1, .group_size = 4};
  for (const float bad : {0.0f, -0.0f, NAN, std::numeric_limits<float>::infinity()}) {
    MemoryTensors tensors;
    tensors.add<float>("s", DType::kF32, {4, 2}, {1, 1, 1, 1, 1, bad, -1, 1});
    const ScaleGrid grid(tensors, *tensors.find("s"), blocks);
    EXPECT_NO_THROW(grid.check(0, 2));
    EXPECT_NO_THROW(grid.check(3, 1));
    EXPECT_THAT([&] { grid.check(1, 2); },
                ThrowsMessage<CheckpointError>(testing::AllOf(
                    HasSubstr("model: tensor \"s\": expected finite numbers other than zero, got "),
                    HasSubstr(" at [2, 1]. The file is damaged"))));
  }
}

TEST(InputScale, IsOneValueAboveZero) {
  MemoryTensors tensors;
  tensors.fill("a", {}, 0.5f).fill("b", {1}, 0.25f).fill("two", {2}, 1);
  EXPECT_EQ(read_input_scale(tensors, "a"), 0.5f);
  EXPECT_EQ(read_input_scale(tensors, "b"), 0.25f);
  EXPECT_THAT([&] { read_input_scale(tensors, "two"); },
              ThrowsMessage<CheckpointError>(HasSubstr("expected shape [1], got [2]")));
  EXPECT_THAT([&] { read_input_scale(tensors, "none"); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("tensor \"none\": expected a tensor of shape [1], got none")));
  for (const float bad : {0.0f, -1.0f, NAN, std::numeric_limits<float>::infinity()}) {
    tensors.fill("bad", {}, bad);
    EXPECT_THAT([&] { read_input_scale(tensors, "bad"); },
                ThrowsMessage<CheckpointError>(HasSubstr(
                    "model: tensor \"bad\": expected a finite number of at least 2^-100, got ")));
  }
}

TEST(ZeroPoints, MustBeZeroWhereTheConfigurationDeniesThem) {
  MemoryTensors tensors;
  tensors.add<int8_t>("z", DType::kI8, {3}, {0, 0, 0});
  EXPECT_NO_THROW(check_all_zero(tensors, "z"));
  EXPECT_NO_THROW(check_all_zero(tensors, "none"));
  tensors.add<int8_t>("z", DType::kI8, {3}, {0, 1, 0});
  EXPECT_THAT([&] { check_all_zero(tensors, "z"); },
              ThrowsMessage<CheckpointError>(
                  "model: tensor \"z\": expected zeros, since the configuration says symmetric, "
                  "got another number in byte 1. Correct the configuration."));
}

ByteWeightSpec float_spec(int64_t block_rows, int64_t group_size) {
  return {.format = "test",
          .scale_name = "a.s",
          .block_rows = block_rows,
          .group_size = group_size,
          .zero_name = "",
          .input_scale_name = ""};
}

TEST(ByteWeight, TakesRowsOfAStoredTensorWithTheirBlocks) {
  constexpr int64_t K = 70;
  MemoryTensors tensors;
  tensors.add_bytes("a.weight", DType::kF8E4M3, {50, K});
  tensors.add<float>("a.s", DType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6});
  const ByteWeightSpec spec = float_spec(20, 48);
  const auto whole = open_byte_weight(tensors, whole_part("a", 50), K, spec);
  const auto values = dequantized(*whole, 50, K);
  const auto* codes =
      reinterpret_cast<const uint8_t*>(tensors.view(*tensors.find("a.weight")).data);
  for (int64_t n = 0; n < 50; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      const float scale = static_cast<float>(1 + n / 20 * 2 + k / 48);
      EXPECT_EQ(values[static_cast<size_t>(n * K + k)], e4m3_to_f32(codes[n * K + k]) * scale);
    }
  }
  LinearSpec::Part part = whole_part("a", 50);
  part.row_begin = 17;
  part.out_features = 9;
  const auto some = open_byte_weight(tensors, part, K, spec);
  EXPECT_EQ(dequantized(*some, 9, K),
            std::vector<float>(values.begin() + 17 * K, values.begin() + 26 * K));
  EXPECT_DOUBLE_EQ(whole->desc().stored_bytes, 50 * K + 24);
  EXPECT_DOUBLE_EQ(some->desc().stored_bytes, (50 * K + 24) * 9 / 50.0);
}

TEST(ByteWeight, RejectsNanByItsIndexInThePart) {
  for (const int64_t K : {8, 13, 64}) {
    for (const int64_t k : {int64_t{0}, K / 2, K - 1}) {
      for (const uint8_t nan : {uint8_t{0x7F}, uint8_t{0xFF}}) {
        std::vector<uint8_t> codes(static_cast<size_t>(4 * K), 0x7E);
        codes[static_cast<size_t>(2 * K + k)] = nan;
        MemoryTensors tensors;
        tensors.add("a.weight", DType::kF8E4M3, {4, K}, codes).fill("a.s", {}, 1);
        const auto weight = open_byte_weight(tensors, whole_part("a", 4), K, float_spec(4, K));
        EXPECT_THAT([&] { weight->check_data(); },
                    ThrowsMessage<CheckpointError>(HasSubstr(
                        str("model: tensor \"a.weight\": expected numbers, got NaN (code ", +nan,
                            ") at [2, ", k, "]. The file is damaged"))));
        LinearSpec::Part part = whole_part("a", 4);
        part.out_features = 2;
        EXPECT_NO_THROW(open_byte_weight(tensors, part, K, float_spec(4, K))->check_data());
      }
    }
  }
}

TEST(ByteWeight, ExpectedTensorsCanBeOpened) {
  ByteWeightSpec spec = float_spec(3, 4);
  spec.dtype = DType::kI8;
  spec.zero_name = "a.z";
  spec.activation = ActivationQuant::kS8Static;
  spec.input_scale_name = "a.input_scale";
  MemoryTensors tensors;
  for (const TensorInfo& info : expected_byte_tensors(whole_part("a", 7), 10, spec)) {
    if (info.dtype == DType::kF32) {
      tensors.fill(info.name, info.shape, 0.5f);
    } else {
      tensors.add_bytes(info.name, info.dtype, info.shape);
    }
  }
  const auto weight = open_byte_weight(tensors, whole_part("a", 7), 10, spec);
  EXPECT_THAT(weight->desc().tensor_names, ElementsAre("a.weight", "a.s", "a.z", "a.input_scale"));
  const auto bytes = [&](const char* name) {
    return reinterpret_cast<const int8_t*>(tensors.view(*tensors.find(name)).data);
  };
  const auto values = dequantized(*weight, 7, 10);
  for (int64_t n = 0; n < 7; ++n) {
    for (int64_t k = 0; k < 10; ++k) {
      const int zero = bytes("a.z")[n / 3 * 3 + k / 4];
      EXPECT_EQ(values[static_cast<size_t>(n * 10 + k)],
                0.5f * static_cast<float>(bytes("a.weight")[n * 10 + k] - zero));
    }
  }
}

HfConfig parse(const std::string& text) { return HfConfig::parse(text, "config.json"); }

TEST(ConfigField, ShowsFileFieldValueAndAdvice) {
  const HfConfig config = parse(R"({"q": {"bits": 5, "list": [1, 2], "name": "a\nb"}})");
  const HfConfig nested = *config.object("q");
  EXPECT_THAT(
      [&] { reject_field(nested, "bits", "4", "Use 4."); },
      ThrowsMessage<UnsupportedError>("config.json: field 'q.bits': expected 4, got 5. Use 4."));
  EXPECT_THAT(
      [&] { fail_field(nested, "none", "4", "State it."); },
      ThrowsMessage<InputError>("config.json: field 'q.none': expected 4, got nothing. State it."));
  EXPECT_EQ(shown_value(nested, "list"), "an array of 2");
  EXPECT_EQ(shown_value(nested, "name"), "\"a\\nb\"");
}

TEST(KvScheme, ReadsTheBitsOfTheCache) {
  EXPECT_EQ(read_kv_bits(parse("{}")), DeclaredKv::kNothing);
  EXPECT_EQ(read_kv_bits(parse(R"({"kv_bits": 16})")), DeclaredKv::kNothing);
  EXPECT_EQ(read_kv_bits(parse(R"({"kv_bits": 8})")), DeclaredKv::kInt8);
  EXPECT_EQ(read_kv_bits(parse(R"({"kv_bits": 4})")), DeclaredKv::kInt4);
  EXPECT_THAT([] { read_kv_bits(parse(R"({"kv_bits": 2})")); },
              ThrowsMessage<UnsupportedError>(
                  "config.json: field 'kv_bits': expected 16, 8 or 4, got 2. Remove the field and "
                  "choose the cache's precision with --kv-dtype."));
  EXPECT_THAT([] { read_kv_bits(parse(R"({"kv_bits": "4"})")); },
              ThrowsMessage<InputError>(HasSubstr("'kv_bits'")));
}

TEST(KvScheme, AcceptsOneScalePerLayerInFp8Alone) {
  EXPECT_EQ(read_kv_cache_scheme(parse("{}")), DeclaredKv::kNothing);
  EXPECT_EQ(read_kv_cache_scheme(parse(R"({"kv_cache_scheme": null})")), DeclaredKv::kNothing);
  EXPECT_EQ(read_kv_cache_scheme(parse(R"({"kv_cache_scheme": {"type": "float", "num_bits": 8,
      "symmetric": true, "strategy": "tensor", "dynamic": false}})")),
            DeclaredKv::kFp8Static);
  const std::pair<const char*, const char*> kBad[] = {
      {R"("type": "int")", "'kv_cache_scheme.type': expected \"float\", got \"int\""},
      {R"("num_bits": 4)", "'kv_cache_scheme.num_bits': expected 8, got 4"},
      {R"("symmetric": false)", "'kv_cache_scheme.symmetric': expected true, got false"},
      {R"("strategy": "attn_head")",
       "'kv_cache_scheme.strategy': expected \"tensor\", got \"attn_head\""},
      {R"("dynamic": true)", "'kv_cache_scheme.dynamic': expected false, got true"}};
  for (const auto& bad : kBad) {
    EXPECT_THAT(
        [&] { read_kv_cache_scheme(parse(str(R"({"kv_cache_scheme": {)", bad.first, "}}"))); },
        ThrowsMessage<UnsupportedError>(
            testing::AllOf(HasSubstr(bad.second), HasSubstr("--kv-dtype"))));
  }
}

TEST(PartTensors, RejectsQuantizedFusedExperts) {
  const LinearSpec::Part part = {.name = "experts.w", .expert = 0, .num_stored_experts = 2};
  MemoryTensors tensors;
  tensors.add_bytes("experts.w", DType::kBf16, {2, 4, 4});
  EXPECT_NO_THROW(reject_quantized_experts(tensors, part));
  tensors.fill("experts.w_scale", {2}, 1);
  EXPECT_THAT([&] { reject_quantized_experts(tensors, part); },
              ThrowsMessage<UnsupportedError>(
                  "model: tensor \"experts.w_scale\": expected fused experts in full precision, "
                  "got f32 [2], quantized. Use a checkpoint that stores each expert's weights as "
                  "tensors of their own."));
  tensors.remove("experts.w_scale");
  tensors.add_bytes("experts.w", DType::kF8E4M3, {2, 4, 4});
  EXPECT_THAT([&] { reject_quantized_experts(tensors, part); },
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "tensor \"experts.w\": expected fused experts in full precision, got f8_e4m3")));
}

TEST(PartTensors, RejectsScalesOfFullPrecision) {
  MemoryTensors tensors;
  tensors.add_bytes("a.weight", DType::kF16, {2, 4});
  EXPECT_FALSE(has_quantized_weight(tensors, whole_part("a", 2)));
  EXPECT_NO_THROW(reject_stray_tensor(tensors, whole_part("a", 2), ".weight_scale"));
  tensors.fill("a.weight_scale", {}, 1);
  EXPECT_THAT([&] { reject_stray_tensor(tensors, whole_part("a", 2), ".weight_scale"); },
              ThrowsMessage<CheckpointError>(
                  "model: tensor \"a.weight\": expected codes, since \"a.weight_scale\" is there, "
                  "got f16. The file is incomplete or was changed: fetch it again."));
}

}  // namespace
}  // namespace halley
