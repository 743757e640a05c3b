// Written AWQ layers: read back, against files of an independent writer, and the declaration.
#include "halley/quant/awq/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/quant/awq/awq.h"
#include "halley/quant/base/testing/coded_weights_in_memory.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(AwqEncode, IsReadBackBitForBit) {
  const QuantizedCase cases[] = {{.N = 8, .K = 3},
                                 {.N = 40, .K = 36, .group_size = 12},
                                 {.N = 72, .K = 128, .group_size = 64},
                                 {.N = 24, .K = 64, .group_size = 32, .is_symmetric = true}};
  uint32_t seed = 1;
  for (const QuantizedCase& of : cases) {
    SCOPED_TRACE(str(of));
    const QuantizedWeight weight = random_quantized_weight(of, seed++);
    const auto scheme = scheme_of(kQuantAwq, awq_declaration(written_format_of(of)));
    expect_reads_back(*scheme, "model.a", encode_awq("model.a", weight), weight);
  }
}

TEST(AwqEncode, GivesTheBytesOfTheIndependentWriter) {
  for (const char* name : {"awq_gemm_g128", "awq_gemm_g32", "awq_skip_o_proj"}) {
    expect_golden_tensors(kQuantAwq, name, encode_awq);
  }
}

TEST(AwqEncode, RejectsWhatTheLayoutCannotHold) {
  const auto encode = [](const QuantizedCase& of) {
    return [of] { encode_awq("model.a", random_quantized_weight(of, 1)); };
  };
  EXPECT_THAT(encode({.N = 12, .K = 64}),
              ThrowsMessage<UnsupportedError>(
                  "layer \"model.a\": expected outputs (N) in multiples of 8, got 12. Leave the "
                  "layer out by an override, or choose another format or other settings."));
  EXPECT_THAT(encode({.N = 8, .K = 64, .bits = 3}),
              ThrowsMessage<UnsupportedError>(HasSubstr("expected bits among [4], got 3.")));
  EXPECT_THAT(encode({.N = 8, .K = 40, .group_size = 32}),
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("expected a group size that divides its 40 inputs (K), got 32.")));
  EXPECT_THAT(encode({.N = 8, .K = 64, .group_size = 32, .has_perm = true}),
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "expected groups of consecutive inputs, got act-order groups (g_idx).")));
}

TEST(AwqDeclaration, ListsLayersLeftOut) {
  WrittenFormat format;
  format.layers = {{.name = "model.layers.0.q_proj"},
                   {.name = "model.layers.0.o_proj", .is_quantized = false},
                   {.name = "lm_head", .is_quantized = false}};
  EXPECT_EQ(awq_declaration(format).dump(),
            R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,)"
            R"("version":"gemm","modules_to_not_convert":["lm_head","model.layers.0.o_proj"]})");
  const auto scheme = scheme_of(kQuantAwq, awq_declaration(format));
  EXPECT_EQ(scheme->expected_tensors(part_of("model.layers.0.o_proj", 8), 128)[0].name,
            "model.layers.0.o_proj.weight");
}

TEST(AwqDeclaration, RejectsWhatItCannotSay) {
  WrittenFormat format;
  format.layers = {{.name = "model.a", .bits = 4, .group_size = 64}};
  EXPECT_THAT([&] { awq_declaration(format); },
              ThrowsMessage<UnsupportedError>(
                  "layer \"model.a\": expected the settings of the whole model in awq (4 bits, "
                  "group 128, asymmetric), got 4 bits, group 64, asymmetric. Leave the layer out, "
                  "or choose a format with settings for each layer."));
  format.layers = {{.name = "m.gate", .is_quantized = false}, {.name = "m.gate_proj"}};
  EXPECT_THAT([&] { awq_declaration(format); },
              ThrowsMessage<UnsupportedError>(
                  "layer \"m.gate_proj\": expected a name that contains no name of a layer left "
                  "out, got \"m.gate\" in it. Leave this layer out, too, or quantize the other."));
}

}  // namespace
}  // namespace halley
