// Written layers of compressed-tensors: read back, against files of an independent writer, and the
// declaration.
#include "halley/quant/compressed_tensors/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float8.h"
#include "halley/quant/base/testing/coded_weights_in_memory.h"
#include "halley/quant/compressed_tensors/compressed_tensors.h"
#include "halley/quant/stored/float8_tensors.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::unique_ptr<QuantScheme> scheme_for(const QuantizedCase& of, CodeStorage storage) {
  return scheme_of(kQuantCompressedTensors,
                   compressed_tensors_declaration(written_format_of(of), storage));
}

TEST(PackQuantizedEncode, IsReadBackBitForBit) {
  uint32_t seed = 1;
  for (const int bits : {4, 8}) {
    for (const int64_t group_size : {0, 12}) {
      for (const bool is_symmetric : {true, false}) {
        const QuantizedCase of = {
            .N = 37, .K = 60, .bits = bits, .group_size = group_size, .is_symmetric = is_symmetric};
        SCOPED_TRACE(str(of));
        const QuantizedWeight weight = random_quantized_weight(of, seed++);
        const auto scheme = scheme_for(of, CodeStorage::kPacked);
        const auto tensors = encode_pack_quantized("model.a", weight);
        const TensorStore store = store_of(tensors);
        EXPECT_NE(store.find("model.a.weight_shape"), nullptr);
        expect_reads_back(*scheme, "model.a", tensors, weight);
      }
    }
  }
}

TEST(PackQuantizedEncode, GivesTheBytesOfTheIndependentWriter) {
  for (const char* name : {"ct_4bit_g32_asym", "ct_8bit_g128_sym", "ct_4bit_g64_actorder_weight"}) {
    expect_golden_tensors(kQuantCompressedTensors, name, encode_pack_quantized);
  }
}

TEST(IntQuantizedEncode, IsReadBackBitForBit) {
  const QuantizedCase of = {.N = 37, .K = 61, .bits = 8, .is_symmetric = true};
  const QuantizedWeight weight = random_quantized_weight(of, 5);
  const auto scheme = scheme_for(of, CodeStorage::kInt8);
  expect_reads_back(*scheme, "model.a", encode_int_quantized("model.a", weight), weight);
  const auto stored = scheme->open(store_of(encode_int_quantized("model.a", weight)),
                                   part_of("model.a", of.N), of.K);
  EXPECT_EQ(stored->desc().activation, ActivationQuant::kS8Token);
}

TEST(IntQuantizedEncode, GivesTheCodesOfTheIndependentWriter) {
  expect_golden_tensors(kQuantCompressedTensors, "ct_int8_token",
                        [](const std::string& name, const QuantizedWeight& weight) {
                          auto tensors = encode_int_quantized(name, weight);
                          tensors.pop_back();  // its scales are bf16
                          return tensors;
                        });
}

TEST(FloatQuantizedEncode, IsReadBack) {
  const int64_t N = 3, K = 5;
  std::vector<float> weight(N * K);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  for (const bool is_static : {false, true}) {
    for (const bool is_per_tensor : {false, true}) {
      SCOPED_TRACE(str(is_static, " ", is_per_tensor));
      WrittenFormat format;
      format.bits = 8;
      format.group_size = 0;
      format.is_symmetric = true;
      format.is_per_tensor = is_per_tensor;
      format.is_activation_static = is_static;
      const OrderedJson declaration = compressed_tensors_declaration(format, CodeStorage::kFloat8);
      EXPECT_EQ(declaration["config_groups"]["group_0"]["weights"]["strategy"],
                is_per_tensor ? "tensor" : "channel");
      const auto scheme = scheme_of(kQuantCompressedTensors, declaration);
      const auto tensors = encode_float8(
          "a", weight, K, is_per_tensor ? Float8Scales::kTensor : Float8Scales::kOutput,
          is_static ? std::optional<float>(0.5f) : std::nullopt);
      const TensorStore store = store_of(tensors);
      const auto stored = scheme->open(store, part_of("a", N), K);
      EXPECT_EQ(stored->desc().tensor_names.size(), tensors.size());
      EXPECT_EQ(stored->desc().activation,
                is_static ? ActivationQuant::kE4m3Static : ActivationQuant::kE4m3Token);
      EXPECT_EQ(stored->desc().activation_scale, is_static ? 0.5f : 0.0f);
      const std::vector<float> values = dequantized(*stored, N, K);
      for (size_t i = 0; i < weight.size(); ++i) {
        EXPECT_NEAR(values[i], weight[i], std::abs(weight[i]) * 0x1p-4) << i;
      }
    }
  }
}

TEST(CompressedTensorsEncode, RejectsWhatTheFormatsCannotHold) {
  const auto pack = [](const QuantizedCase& of) {
    return [of] { encode_pack_quantized("model.a", random_quantized_weight(of, 1)); };
  };
  EXPECT_THAT(pack({.N = 8, .K = 64, .bits = 3}),
              ThrowsMessage<UnsupportedError>(
                  "layer \"model.a\": expected bits among [4, 8], got 3. Leave the layer out by an "
                  "override, or choose another format or other settings."));
  EXPECT_THAT(pack({.N = 8, .K = 40, .group_size = 32}),
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("expected a group size that divides its 40 inputs (K), got 32.")));
  EXPECT_THAT(pack({.N = 8, .K = 64, .group_size = 32, .has_perm = true}),
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "expected groups of consecutive inputs, got act-order groups (g_idx).")));
  const auto encode = [](const QuantizedCase& of) {
    return [of] { encode_int_quantized("model.a", random_quantized_weight(of, 1)); };
  };
  EXPECT_THAT(encode({.N = 8, .K = 64, .is_symmetric = true}),
              ThrowsMessage<UnsupportedError>(HasSubstr("expected bits among [8], got 4.")));
  EXPECT_THAT(encode({.N = 8, .K = 64, .bits = 8}),
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("expected a symmetric weight, got an asymmetric one.")));
  EXPECT_THAT(
      encode({.N = 8, .K = 64, .bits = 8, .group_size = 32, .is_symmetric = true}),
      ThrowsMessage<UnsupportedError>(HasSubstr("expected per-channel scales, got groups of 32.")));
}

TEST(CompressedTensorsDeclaration, HasAGroupForEachSetting) {
  WrittenFormat format;
  format.layers = {{.name = "m.a"},
                   {.name = "m.b", .bits = 8, .group_size = 0, .is_symmetric = true},
                   {.name = "m.c", .is_quantized = false},
                   {.name = "m.d", .bits = 8, .group_size = 0, .is_symmetric = true},
                   {.name = "m.e", .group_size = 32}};
  const OrderedJson declaration = compressed_tensors_declaration(format, CodeStorage::kPacked);
  EXPECT_EQ(declaration.dump(),
            R"({"quant_method":"compressed-tensors","format":"pack-quantized",)"
            R"("quantization_status":"compressed","config_groups":{)"
            R"("group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int",)"
            R"("symmetric":false,"strategy":"group","dynamic":false,"group_size":128},)"
            R"("input_activations":null,"output_activations":null},)"
            R"("group_1":{"targets":["m.b","m.d"],"weights":{"num_bits":8,"type":"int",)"
            R"("symmetric":true,"strategy":"channel","dynamic":false},)"
            R"("input_activations":null,"output_activations":null},)"
            R"("group_2":{"targets":["m.e"],"weights":{"num_bits":4,"type":"int",)"
            R"("symmetric":false,"strategy":"group","dynamic":false,"group_size":32},)"
            R"("input_activations":null,"output_activations":null}},)"
            R"("ignore":["lm_head","m.c"],"kv_cache_scheme":null})");
  const auto scheme = scheme_of(kQuantCompressedTensors, declaration);
  const QuantizedWeight weight =
      random_quantized_weight({.N = 8, .K = 64, .bits = 8, .is_symmetric = true}, 3);
  expect_reads_back(*scheme, "m.d", encode_pack_quantized("m.d", weight), weight);
  EXPECT_EQ(scheme->expected_tensors(part_of("m.c", 8), 64)[0].name, "m.c.weight");
}

TEST(CompressedTensorsDeclaration, DeclaresActivationsAndActOrder) {
  WrittenFormat format;
  format.bits = 8;
  format.group_size = 0;
  format.is_symmetric = true;
  const auto inputs = [&](CodeStorage storage) {
    return compressed_tensors_declaration(format,
                                          storage)["config_groups"]["group_0"]["input_activations"]
        .dump();
  };
  EXPECT_EQ(inputs(CodeStorage::kInt8),
            R"({"num_bits":8,"type":"int","symmetric":true,"strategy":"token","dynamic":true})");
  EXPECT_EQ(inputs(CodeStorage::kFloat8),
            R"({"num_bits":8,"type":"float","symmetric":true,"strategy":"token","dynamic":true})");
  format.is_activation_static = true;
  EXPECT_EQ(
      inputs(CodeStorage::kFloat8),
      R"({"num_bits":8,"type":"float","symmetric":true,"strategy":"tensor","dynamic":false})");
  format.group_size = 32;
  format.has_act_order = true;
  EXPECT_EQ(compressed_tensors_declaration(
                format, CodeStorage::kPacked)["config_groups"]["group_0"]["weights"]["actorder"],
            "weight");
}

}  // namespace
}  // namespace halley
