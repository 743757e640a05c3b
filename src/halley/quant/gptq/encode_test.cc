// Written GPTQ layers: read back, against files of an independent writer, and the declaration.
#include "halley/quant/gptq/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/quant/base/testing/coded_weights_in_memory.h"
#include "halley/quant/gptq/gptq.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(GptqEncode, IsReadBackBitForBit) {
  uint32_t seed = 1;
  for (const int bits : {2, 3, 4, 8}) {
    for (const int64_t group_size : {0, 32, 48}) {
      for (const bool is_symmetric : {true, false}) {
        for (const bool has_perm : {false, true}) {
          const QuantizedCase of = {.N = 64,
                                    .K = 96,
                                    .bits = bits,
                                    .group_size = group_size,
                                    .is_symmetric = is_symmetric,
                                    .has_perm = has_perm && group_size != 0};
          SCOPED_TRACE(str(of));
          const QuantizedWeight weight = random_quantized_weight(of, seed++);
          WrittenFormat format = written_format_of(of);
          // A symmetric weight of a model in which others are not.
          for (const bool has_zero_points : {true, !is_symmetric}) {
            format.has_zero_points = has_zero_points;
            const auto tensors = encode_gptq("model.a", weight, gptq_storage(has_zero_points));
            EXPECT_EQ(tensors.back().info.name, "model.a.g_idx");
            const auto scheme = scheme_of(kQuantGptq, gptq_declaration(format));
            expect_reads_back(*scheme, "model.a", tensors, weight);
          }
        }
      }
    }
  }
}

TEST(GptqEncode, StoresZeroPointsAsTheyAreWhereAnyIsOfItsOwn) {
  const QuantizedCase of = {.N = 32, .K = 32};
  QuantizedWeight weight = random_quantized_weight(of, 1);
  std::fill(weight.zeros.begin(), weight.zeros.end(), uint8_t{0});
  weight.zeros[1] = 5;
  const auto first_word = [&](GptqStorage storage) {
    uint32_t word;
    std::memcpy(&word, encode_gptq("a", weight, storage)[1].data.data(), sizeof(word));
    return word;
  };
  EXPECT_EQ(first_word(gptq_storage(true)), 0x00000050u);
  EXPECT_EQ(first_word(gptq_storage(false)), 0xFFFFFF4Fu);  // each field masked by itself
  WrittenFormat format;
  format.has_zero_points = false;
  EXPECT_EQ(gptq_declaration(format)["checkpoint_format"], "gptq");
}

TEST(GptqEncode, GivesTheBytesOfTheIndependentWriter) {
  const auto encode = [](const std::string& name, const QuantizedWeight& weight) {
    return encode_gptq(name, weight, GptqStorage::kZeroMinusOne);
  };
  for (const char* name :
       {"gptq_2bit_g128_asym", "gptq_3bit_g128_asym", "gptq_4bit_g128_asym", "gptq_8bit_g128_asym",
        "gptq_4bit_g128_sym", "gptq_4bit_channel_sym", "gptq_4bit_g16_sym",
        "gptq_4bit_g32_desc_act", "gptq_3bit_g64_desc_act", "gptq_4bit_g32_zero_masked"}) {
    expect_golden_tensors(kQuantGptq, name, encode);
  }
  expect_golden_tensors(kQuantGptq, "gptq_4bit_g32_v2_asym",
                        [](const std::string& name, const QuantizedWeight& weight) {
                          return encode_gptq(name, weight, GptqStorage::kZero);
                        });
}

TEST(GptqEncode, RejectsWhatOtherServersDoNotLoad) {
  const auto encode = [](const QuantizedCase& of) {
    return [of] { encode_gptq("model.a", random_quantized_weight(of, 1), GptqStorage::kZero); };
  };
  EXPECT_THAT(encode({.N = 48, .K = 64}),
              ThrowsMessage<UnsupportedError>(
                  "layer \"model.a\": expected outputs (N) in multiples of 32, got 48. Leave the "
                  "layer out by an override, or choose another format or other settings."));
  EXPECT_THAT(encode({.N = 32, .K = 40}), ThrowsMessage<UnsupportedError>(HasSubstr(
                                              "expected inputs (K) in multiples of 32, got 40.")));
  EXPECT_THAT(encode({.N = 32, .K = 96, .group_size = 64}),
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("expected a group size that divides its 96 inputs (K), got 64.")));
  EXPECT_THAT(
      encode({.N = 32, .K = 64, .bits = 6}),
      ThrowsMessage<UnsupportedError>(HasSubstr("expected bits among [2, 3, 4, 8], got 6.")));
}

TEST(GptqDeclaration, HasTheFieldsAndRulesOfGptqModel) {
  WrittenFormat format;
  format.has_act_order = true;
  format.damp = 0.05;
  format.layers = {{.name = "model.layers.0.q_proj"},
                   {.name = "model.layers.0.o_proj", .is_quantized = false},
                   {.name = "model.layers.0.down_proj", .bits = 8, .group_size = 0},
                   {.name = "lm_head", .is_quantized = false}};
  EXPECT_EQ(gptq_declaration(format).dump(),
            R"({"quant_method":"gptq","bits":4,"group_size":128,"damp_percent":0.05,)"
            R"("desc_act":true,"static_groups":false,"sym":false,"lm_head":false,)"
            R"("checkpoint_format":"gptq_v2","pack_dtype":"int32","dynamic":{)"
            R"("-:^model\\.layers\\.0\\.o_proj$":{},)"
            R"("+:^model\\.layers\\.0\\.down_proj$":{"bits":8,"group_size":-1,"sym":false}}})");
}

TEST(GptqDeclaration, IsReadAsItIsMeant) {
  WrittenFormat format;
  format.group_size = 32;
  format.layers = {{.name = "m.a", .group_size = 32},
                   {.name = "m.a2", .is_quantized = false},
                   {.name = "m.b", .bits = 8, .group_size = 0, .is_symmetric = true}};
  const auto scheme = scheme_of(kQuantGptq, gptq_declaration(format));
  const QuantizedWeight four = random_quantized_weight({.N = 32, .K = 64, .group_size = 32}, 1);
  expect_reads_back(*scheme, "m.a", encode_gptq("m.a", four, GptqStorage::kZero), four);
  const QuantizedWeight eight =
      random_quantized_weight({.N = 32, .K = 64, .bits = 8, .is_symmetric = true}, 2);
  expect_reads_back(*scheme, "m.b", encode_gptq("m.b", eight, GptqStorage::kZero), eight);
  EXPECT_EQ(scheme->expected_tensors(part_of("m.a2", 32), 64)[0].name, "m.a2.weight");
  LinearSpec::Part head = part_of("lm_head", 32);
  head.is_usually_dense = true;
  EXPECT_EQ(scheme->expected_tensors(head, 64)[0].name, "lm_head.weight");
}

}  // namespace
}  // namespace halley
