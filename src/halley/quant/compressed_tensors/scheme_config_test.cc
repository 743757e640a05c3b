// The configuration of compressed-tensors: schemes, targets, and every rejection.
#include "halley/quant/compressed_tensors/scheme_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

SchemeConfig parse(const std::string& fields) {
  return SchemeConfig(HfConfig::parse(fields, "config.json"));
}

/// Without groups, and with these other fields.
SchemeConfig parse_bare(const std::string& fields) {
  return parse(str(R"({"format": "dense")", fields.empty() ? "" : ", ", fields, "}"));
}

/// One group for all linear layers.
GroupScheme parse_group(const std::string& format, const std::string& weights,
                        const std::string& more = "") {
  const SchemeConfig config =
      parse(str(R"({"format": ")", format, R"(", "config_groups": {"g": {"targets": ["Linear"], )",
                R"("weights": {)", weights, "}", more, "}}}"));
  return config.groups().at(0);
}

GroupScheme float_with_inputs(const std::string& inputs) {
  return parse_group("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "channel")",
                     str(R"(, "input_activations": {)", inputs, "}"));
}

GroupScheme with_inputs(const std::string& inputs) {
  return parse_group("int-quantized", R"("num_bits": 8, "strategy": "channel")",
                     str(R"(, "input_activations": {)", inputs, "}"));
}

template <typename Error, typename Parse>
void expect_fails(const Parse& parse_it, const std::string& text) {
  EXPECT_THAT(parse_it, ThrowsMessage<Error>(HasSubstr(text))) << text;
}

TEST(SchemeConfig, ReadsStoragesBitsAndStrategies) {
  const GroupScheme packed = parse_group(
      "pack-quantized",
      R"("num_bits": 3, "type": "int", "symmetric": false, "strategy": "group", "group_size": 64)");
  EXPECT_EQ(packed.storage, CodeStorage::kPacked);
  EXPECT_EQ(packed.bits, 3);
  EXPECT_FALSE(packed.is_symmetric);
  EXPECT_EQ(packed.group_size, 64);
  EXPECT_EQ(packed.block_rows, 1);
  EXPECT_EQ(packed.path, "config_groups.g");
  const GroupScheme tensor = parse_group("int-quantized", R"("num_bits": 8, "strategy": "tensor")");
  EXPECT_EQ(tensor.storage, CodeStorage::kInt8);
  EXPECT_EQ(tensor.block_rows, 0);
  EXPECT_EQ(tensor.group_size, 0);
  for (const char* block : {"[64, 32]", "[64,32]"}) {
    const GroupScheme blocks = parse_group(
        "float-quantized",
        str(R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": )", block));
    EXPECT_EQ(blocks.block_rows, 64);
    EXPECT_EQ(blocks.group_size, 32);
  }
  EXPECT_EQ(parse_group("float-quantized", R"("num_bits": 8, "type": "float",
                        "strategy": "block", "block_structure": "128x128")")
                .block_rows,
            128);
}

TEST(SchemeConfig, GroupSizeTellsAMissingStrategy) {
  EXPECT_EQ(parse_group("pack-quantized", R"("num_bits": 4, "group_size": 32)").group_size, 32);
  EXPECT_EQ(parse_group("pack-quantized", R"("num_bits": 4, "group_size": -1)").block_rows, 1);
  EXPECT_EQ(parse_group("pack-quantized", R"("num_bits": 4)").block_rows, 0);
}

TEST(SchemeConfig, ReadsActOrder) {
  const auto order = [](const char* actorder) {
    return parse_group("pack-quantized", str(R"("num_bits": 4, "strategy": "group", "group_size": 8,
                       "actorder": )",
                                             actorder))
        .has_input_perm;
  };
  for (const char* yes : {"\"group\"", "\"dynamic\"", "true"}) EXPECT_TRUE(order(yes)) << yes;
  for (const char* no : {"\"weight\"", "\"static\"", "false", "null"})
    EXPECT_FALSE(order(no)) << no;
  expect_fails<UnsupportedError>([&] { order("\"random\""); },
                                 "'config_groups.g.weights.actorder': expected \"group\" or "
                                 "\"weight\", got \"random\"");
  expect_fails<InputError>(
      [] {
        parse_group("pack-quantized",
                    R"("num_bits": 4, "strategy": "channel", "actorder": "group")");
      },
      "'config_groups.g.weights.actorder': expected none, or pack-quantized weights with a "
      "group_size, got \"group\"");
}

TEST(SchemeConfig, ReadsActivations) {
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "type": "int", "strategy": "token", "dynamic": true)")
                .activation,
            ActivationQuant::kS8Token);
  EXPECT_EQ(with_inputs(R"("num_bits": 8, "strategy": "tensor", "dynamic": false)").activation,
            ActivationQuant::kS8Static);
  EXPECT_EQ(
      float_with_inputs(R"("num_bits": 8, "type": "float", "strategy": "token", "dynamic": true)")
          .activation,
      ActivationQuant::kE4m3Token);
  EXPECT_EQ(float_with_inputs(R"("num_bits": 8, "type": "float")").activation,
            ActivationQuant::kE4m3Static);
  EXPECT_EQ(
      float_with_inputs(R"("num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
                        "dynamic": true)")
          .activation,
      ActivationQuant::kE4m3Group128);
  EXPECT_EQ(
      parse_group("int-quantized", R"("num_bits": 8)", R"(, "input_activations": null)").activation,
      ActivationQuant::kNone);
}

TEST(SchemeConfig, NaiveQuantizedIsOneValueAByteOrFloat) {
  const GroupScheme floats =
      parse_group("naive-quantized", R"("num_bits": 8, "type": "float", "strategy": "channel")");
  EXPECT_EQ(floats.storage, CodeStorage::kFloat8);
  EXPECT_EQ(floats.activation, ActivationQuant::kNone);
  const GroupScheme integers = parse_group(
      "mixed-precision", R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 32)",
      R"(, "format": "naive-quantized")");
  EXPECT_EQ(integers.storage, CodeStorage::kInt8);
  EXPECT_EQ(integers.group_size, 32);
}

TEST(SchemeConfig, RejectsActivationsOfAnotherTypeThanTheWeights) {
  const std::string at = "config.json: field 'config_groups.g.input_activations.type': expected ";
  const std::string floats = R"(, "input_activations": {"num_bits": 8, "type": "float",
                             "strategy": "token", "dynamic": true})";
  expect_fails<UnsupportedError>(
      [&] {
        parse_group("pack-quantized", R"("num_bits": 4, "strategy": "group", "group_size": 128)",
                    floats);
      },
      at + "\"int\" for activations of integer weights, got \"float\". Quantize the model again "
           "with llm-compressor as W4A16, W8A8 or FP8.");
  expect_fails<UnsupportedError>(
      [] { float_with_inputs(R"("num_bits": 8, "type": "int", "dynamic": true)"); },
      at + "\"float\" for activations of floating-point weights, got \"int\".");
}

TEST(SchemeConfig, RejectsOtherActivations) {
  const std::string at = "config.json: field 'config_groups.g.input_activations.";
  expect_fails<UnsupportedError>([] { with_inputs(R"("num_bits": 4)"); },
                                 at + "num_bits': expected 8 for activations, got 4.");
  expect_fails<UnsupportedError>(
      [] { with_inputs(R"("num_bits": 8, "symmetric": false)"); },
      at + "symmetric': expected true for activations, got false. Quantize the model again");
  expect_fails<UnsupportedError>([] { with_inputs(R"("num_bits": 8, "dynamic": "local")"); },
                                 at + "dynamic': expected true or false, got \"local\".");
  expect_fails<UnsupportedError>(
      [] { with_inputs(R"("num_bits": 8, "dynamic": true, "strategy": "tensor")"); },
      at + "strategy': expected \"token\" for dynamic activations, got \"tensor\".");
  expect_fails<UnsupportedError>(
      [] { with_inputs(R"("num_bits": 8, "dynamic": false, "strategy": "token")"); },
      at + "strategy': expected \"tensor\" for static activations, got \"token\".");
  expect_fails<UnsupportedError>(
      [] {
        float_with_inputs(R"("num_bits": 8, "type": "float", "dynamic": true, "strategy": "group",
                    "group_size": 64)");
      },
      at + "group_size': expected 128 for activations in groups, got 64.");
  expect_fails<InputError>([] { with_inputs(R"("num_bits": 8, "type": "bool")"); },
                           at + "type': expected \"int\" or \"float\", got \"bool\".");
  expect_fails<UnsupportedError>(
      [] {
        parse_group("int-quantized", R"("num_bits": 8)",
                    R"(, "output_activations": {"num_bits": 8})");
      },
      "'config_groups.g.output_activations': expected nothing, got an object of 1.");
}

TEST(SchemeConfig, RejectsOtherWeightsByField) {
  const std::string at = "config.json: field 'config_groups.g.weights.";
  const auto packed = [](const std::string& weights) {
    return [=] { parse_group("pack-quantized", weights); };
  };
  expect_fails<UnsupportedError>(packed(R"("num_bits": 5)"),
                                 at + "num_bits': expected 2, 3, 4 or 8 in pack-quantized, got 5.");
  expect_fails<InputError>(packed(R"("num_bits": 8, "type": "float")"),
                           at + "type': expected \"int\", got \"float\". Type and format must");
  expect_fails<UnsupportedError>(packed(R"("num_bits": 4, "dynamic": true)"),
                                 at + "dynamic': expected false for weights, got true.");
  expect_fails<UnsupportedError>(
      packed(R"("num_bits": 4, "strategy": "block", "block_structure": [128, 128])"),
      at + "strategy': expected \"tensor\", \"channel\" or \"group\" in pack-quantized, got "
           "\"block\".");
  expect_fails<UnsupportedError>(
      packed(R"("num_bits": 4, "strategy": "tensor_group")"),
      at + "strategy': expected \"tensor\", \"channel\", \"group\" or \"block\", got "
           "\"tensor_group\".");
  expect_fails<UnsupportedError>(
      packed(R"("num_bits": 4, "strategy": "tensor", "symmetric": false)"),
      at + "strategy': expected \"channel\" or \"group\" where symmetric is false");
  expect_fails<InputError>(packed(R"("num_bits": 4, "strategy": "group", "group_size": 0)"),
                           at + "group_size': expected -1 or a positive integer, got 0.");
  expect_fails<InputError>(packed(R"("strategy": "channel")"), at + "num_bits'");
  expect_fails<UnsupportedError>([] { parse_group("int-quantized", R"("num_bits": 16)"); },
                                 at + "num_bits': expected at most 8 in int-quantized, got 16.");
  const auto floats = [](const std::string& weights) {
    return [=] { parse_group("float-quantized", R"("type": "float", )" + weights); };
  };
  expect_fails<UnsupportedError>(floats(R"("num_bits": 4)"),
                                 at + "num_bits': expected 8 in float-quantized, got 4.");
  expect_fails<UnsupportedError>(floats(R"("num_bits": 8, "symmetric": false)"),
                                 at + "symmetric': expected true for floats, got false.");
  for (const char* block : {"\"64x64\"", "[128]", "[0, 1]"}) {
    expect_fails<InputError>(
        floats(str(R"("num_bits": 8, "strategy": "block", "block_structure": )", block)),
        at + "block_structure': expected two positive integers");
  }
  expect_fails<UnsupportedError>(packed(R"("num_bits": 4, "type": "complex")"),
                                 at + "type': expected \"int\" or \"float\", got \"complex\".");
  expect_fails<InputError>(
      [] { parse(R"({"format": "int-quantized", "config_groups": {"g": {"targets": []}}})"); },
      "config.json: field 'config_groups.g.weights': expected the scheme of the weights, got "
      "nothing.");
}

TEST(SchemeConfig, ReadsFloatsOfFourBits) {
  const std::string nv = R"("num_bits": 4, "type": "float", "strategy": "tensor_group")";
  const std::string mx = R"("num_bits": 4, "type": "float", "strategy": "group")";
  const GroupScheme scheme = parse_group("nvfp4-pack-quantized", nv + R"(, "group_size": 16)");
  EXPECT_EQ(scheme.storage, CodeStorage::kNvFp4);
  EXPECT_EQ(scheme.group_size, 16);
  EXPECT_EQ(scheme.warning, "");
  EXPECT_EQ(parse_group("mxfp4-pack-quantized", mx).storage, CodeStorage::kMxFp4);
  EXPECT_EQ(parse_group("mxfp4-pack-quantized", mx).group_size, 32);
  const auto with_inputs_of = [&](const std::string& bits) {
    return parse_group("nvfp4-pack-quantized", nv,
                       str(R"(, "input_activations": {"num_bits": )", bits,
                           R"(, "type": "float", "strategy": "tensor_group", "group_size": 16,)",
                           R"( "dynamic": "local"})"));
  };
  EXPECT_EQ(with_inputs_of("4").activation, ActivationQuant::kNone);
  EXPECT_THAT(with_inputs_of("4").warning, HasSubstr("activations are not rounded"));
  expect_fails<UnsupportedError>([&] { with_inputs_of("8"); }, "input_activations");
  expect_fails<UnsupportedError>(
      [&] {
        parse_group("mxfp4-pack-quantized", mx, R"(, "input_activations": {"num_bits": 8,
                    "type": "float", "dynamic": true})");
      },
      "field 'config_groups.g.input_activations': expected nothing, or 4-bit floats, with");
  const std::string at = "config.json: field 'config_groups.g.weights.";
  expect_fails<UnsupportedError>([&] { parse_group("nvfp4-pack-quantized", mx); },
                                 at + "strategy': expected \"tensor_group\", got \"group\".");
  expect_fails<UnsupportedError>(
      [] { parse_group("nvfp4-pack-quantized", R"("num_bits": 8, "type": "float")"); },
      at + "num_bits': expected 4 in formats of 4-bit floats, got 8.");
  expect_fails<InputError>([] { parse_group("nvfp4-pack-quantized", R"("num_bits": 4)"); },
                           at + "type': expected \"float\" in this format");
}

TEST(SchemeConfig, RejectsOtherFormatsByNameWithWhatToDo) {
  const std::string expected =
      "\"pack-quantized\", \"int-quantized\", \"float-quantized\", \"naive-quantized\", "
      "\"nvfp4-pack-quantized\" or \"mxfp4-pack-quantized\" for the group or the whole "
      "configuration";
  for (const char* format : {"dense", "marlin-24", "sparse-bitmask", "sparse-24-bitmask",
                             "mxfp8-quantized", "nvfp4", "own"}) {
    expect_fails<UnsupportedError>(
        [&] { parse_group(format, R"("num_bits": 4)"); },
        str("config.json: field 'format': expected ", expected, ", got \"", format, "\". "));
    expect_fails<UnsupportedError>(
        [&] {
          parse_group("mixed-precision", R"("num_bits": 4)", str(R"(, "format": ")", format, "\""));
        },
        str("config.json: field 'config_groups.g.format': expected ", expected, ", got \"", format,
            "\". "));
  }
  expect_fails<UnsupportedError>([] { parse_group("marlin-24", R"("num_bits": 4)"); },
                                 "Its weights are 2:4 sparse: quantize the model again without "
                                 "sparsity, as pack-quantized.");
  expect_fails<InputError>([] { parse_group("mixed-precision", R"("num_bits": 4)"); },
                           "got nothing. State it for each group.");
}

TEST(SchemeConfig, RejectsSparsityAndTransforms) {
  EXPECT_NO_THROW(parse_bare(R"("sparsity_config": {})"));
  EXPECT_NO_THROW(parse_bare(R"("sparsity_config": {"format": "dense"})"));
  expect_fails<UnsupportedError>(
      [] { parse_bare(R"("sparsity_config": {"format": "sparse-24-bitmask"})"); },
      "field 'sparsity_config.format': expected \"dense\", got \"sparse-24-bitmask\". Decompress");
  EXPECT_NO_THROW(parse_bare(R"("transform_config": {"config_groups": {}})"));
  expect_fails<UnsupportedError>(
      [] { parse_bare(R"("transform_config": {"config_groups": {"R1": {"type": "hadamard"}}})"); },
      "field 'transform_config': expected nothing, got an object of 1. Quantize the model without "
      "transforms");
}

TEST(SchemeConfig, RequiresGroupsAndTargets) {
  for (const char* fields :
       {R"({"format": "int-quantized"})", R"({"format": "int-quantized", "config_groups": {}})"}) {
    expect_fails<InputError>([&] { parse(fields); },
                             "config.json: field 'config_groups': expected groups of layers with "
                             "their schemes, got ");
  }
  expect_fails<InputError>(
      [] { parse(R"({"format": "int-quantized", "config_groups": {"g": {}}})"); },
      "config.json: field 'config_groups.g.targets': expected a list of names, expressions or "
      "\"Linear\", got nothing. State which layers the group has.");
}

TEST(SchemeConfig, WarnsOfAnOddStatus) {
  EXPECT_THAT(parse_bare(R"("quantization_status": "frozen")").warnings(), IsEmpty());
  EXPECT_THAT(parse_bare("").warnings(), IsEmpty());
  EXPECT_THAT(parse_bare(R"("quantization_status": "calibration")").warnings(),
              ElementsAre("config.json: field 'quantization_status': expected \"compressed\" or "
                          "\"frozen\", got \"calibration\": the scales may not be final."));
}

TEST(SchemeConfig, ReadsTheDeclaredCache) {
  EXPECT_EQ(parse_bare("").declared_kv(), DeclaredKv::kNothing);
  EXPECT_EQ(parse_bare(R"("kv_cache_scheme": {"type": "float", "num_bits": 8})").declared_kv(),
            DeclaredKv::kFp8Static);
  expect_fails<UnsupportedError>([] { parse_bare(R"("kv_cache_scheme": {"type": "int"})"); },
                                 "field 'kv_cache_scheme.type': expected \"float\", got \"int\"");
}

/// Groups "z" and "a", in this order in the file, told apart by their bits.
const SchemeConfig& two_groups() {
  static const SchemeConfig config = parse(R"({"format": "pack-quantized",
      "ignore": ["lm_head", "re:.*visual"],
      "config_groups": {
        "z": {"targets": ["Linear", "re:.*\\.up$", "re:.*[.]both$"], "weights": {"num_bits": 2}},
        "a": {"targets": ["m.up", "re:.*both$", "lm_head"], "weights": {"num_bits": 4}}}})");
  return config;
}

int bits_for(const std::string& layer) {
  const auto verdict = two_groups().verdict(layer, false);
  return verdict.group == nullptr ? 0 : verdict.group->bits;
}

TEST(SchemeTargets, NamesGoBeforeExpressionsBeforeTheClass) {
  EXPECT_EQ(bits_for("m.up"), 4);         // a name, although an expression stands before it
  EXPECT_EQ(bits_for("n.up"), 2);         // an expression
  EXPECT_EQ(bits_for("m.both"), 2);       // the first expression of the file
  EXPECT_EQ(bits_for("m.something"), 2);  // the class
  EXPECT_EQ(bits_for("lm_head"), 0);      // ignored, although a target names it
  EXPECT_EQ(bits_for("m.visual.up"), 0);
}

TEST(SchemeTargets, SayWhy) {
  const auto because = [](const char* layer) { return two_groups().verdict(layer, false).because; };
  EXPECT_EQ(because("m.up"), "field 'config_groups.a.targets' holds \"m.up\"");
  EXPECT_EQ(because("lm_head"), "field 'ignore' holds \"lm_head\"");
  const SchemeConfig none = parse_bare("");
  EXPECT_EQ(none.verdict("m.up", false).because, "no target in field 'config_groups' names it");
  EXPECT_EQ(none.verdict("m.up", false).says, ConfigSays::kDense);
}

TEST(SchemeTargets, OnlyTheClassLeavesUsuallyDenseLayersOpen) {
  EXPECT_EQ(two_groups().verdict("m.router", true).says, ConfigSays::kEither);
  EXPECT_EQ(two_groups().verdict("m.up", true).says, ConfigSays::kQuantized);
  EXPECT_EQ(two_groups().verdict("lm_head", true).says, ConfigSays::kDense);
}

TEST(SchemeTargets, BadExpressionsAreRejectedByField) {
  expect_fails<InputError>([] { parse_bare(R"("ignore": ["re:*"])"); },
                           "config.json: field 'ignore': expected a regular expression, got ");
}

}  // namespace
}  // namespace halley
