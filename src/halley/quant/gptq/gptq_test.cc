// Weights of GPTQ checkpoints: the goldens, slices of them, and damaged tensors.
#include "halley/quant/gptq/gptq.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/quant/base/open_section.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/base/testing/tensors_in_memory.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr const char* kGoldens[] = {
    "gptq_2bit_g128_asym",
    "gptq_3bit_g128_asym",
    "gptq_3bit_g64_desc_act",
    "gptq_4bit_channel_sym",
    "gptq_4bit_g128_asym",
    "gptq_4bit_g128_mislabelled_v2",
    "gptq_4bit_g128_sym",
    "gptq_4bit_g128_v2_sym",
    "gptq_4bit_g16_sym",
    "gptq_4bit_g32_desc_act",
    "gptq_4bit_g32_sym_no_g_idx",
    "gptq_4bit_g32_v2_asym",
    "gptq_4bit_g32_zero_masked",
    "gptq_4bit_g64_sym_bias",
    "gptq_8bit_g128_asym",
    "gptq_bits_fallback",
    "gptq_dynamic",
    "gptq_marlin_channel",
    "gptq_marlin_g128",
    "gptq_quantize_config_file",
};

TEST(GptqGoldens, LoadBitForBit) {
  for (const char* name : kGoldens) expect_golden_weights(kQuantGptq, name);
}

TEST(GptqGoldens, WarnExactlyAsExpected) {
  for (const char* name : kGoldens) {
    const GoldenCheckpoint golden(name);
    const auto scheme = kQuantGptq.detect(golden.quant, *golden.source);
    const Json& expected = golden.expected.at("warnings");
    for (const Json& linear : golden.expected.at("linears")) {
      const LinearSpec spec = linear_spec_of(linear);
      const auto weight = scheme->open(*golden.source, spec.parts[0], spec.in_features);
      ASSERT_EQ(weight->warnings().size(), expected.size()) << name;
      for (size_t i = 0; i < expected.size(); ++i) {
        for (const Json& word : expected[i]) {
          EXPECT_THAT(weight->warnings()[i], HasSubstr(word.get<std::string>())) << name;
        }
      }
    }
  }
}

/// A part of some rows of a stored tensor has the values of these rows of the whole.
TEST(GptqGoldens, SlicesOfStoredTensorsHaveTheirRows) {
  for (const char* name : {"gptq_3bit_g64_desc_act", "gptq_4bit_g128_asym", "gptq_2bit_g128_asym",
                           "gptq_8bit_g128_asym", "gptq_marlin_g128", "gptq_marlin_channel"}) {
    SCOPED_TRACE(name);
    const GoldenCheckpoint golden(name);
    const auto scheme = kQuantGptq.detect(golden.quant, *golden.source);
    LinearSpec spec = linear_spec_of(golden.expected.at("linears")[0]);
    LinearSpec::Part& part = spec.parts[0];
    const int64_t K = spec.in_features, N = part.stored_rows;
    const auto whole = scheme->open(*golden.source, part, K);
    const std::vector<float> all = dequantized_weight(*whole, N, K);
    WeightHash hash;
    for (const float number : all) hash.add(number);
    EXPECT_EQ(hash.text(), golden.expected.at("linears")[0].at("hash").get<std::string>());
    for (const int64_t begin : {int64_t{3}, int64_t{32}, int64_t{65}}) {
      part.row_begin = begin;
      part.out_features = N - begin - 1;
      const auto slice = scheme->open(*golden.source, part, K);
      const std::vector<float> rows(all.begin() + begin * K, all.begin() + (N - 1) * K);
      EXPECT_EQ(dequantized_weight(*slice, part.out_features, K), rows) << begin;
      EXPECT_DOUBLE_EQ(slice->desc().stored_bytes, whole->desc().stored_bytes *
                                                       static_cast<double>(part.out_features) /
                                                       static_cast<double>(N));
    }
  }
}

TEST(GptqGoldens, PartsOfOneActOrderAreJoined) {
  const GoldenCheckpoint golden("gptq_4bit_g32_desc_act");
  const auto scheme = kQuantGptq.detect(golden.quant, *golden.source);
  LinearSpec spec = linear_spec_of(golden.expected.at("linears")[0]);
  for (const size_t other : {1, 2}) {
    spec.parts.push_back(linear_spec_of(golden.expected.at("linears")[other]).parts[0]);
  }
  EXPECT_EQ(spec.display_name(), "model.layers.0.self_attn.{q,k,v}_proj");
  EXPECT_EQ(open_sections(*scheme, *golden.source, spec).size(), 1U);
}

// ---- tensors of a test -------------------------------------------------------------------------

constexpr int64_t N = 24;

/// A layer "a" of 4 bits, 24 outputs, 40 inputs in groups of 16: the last group has 8.
struct SmallLayer {
  SmallLayer() {
    std::vector<uint32_t> codes(5 * N), zeros(3 * 3, 0x77777777u);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint32_t>(i) * 0x9E3779B9u;
    std::vector<uint16_t> scales(3 * N);
    for (size_t i = 0; i < scales.size(); ++i) {
      scales[i] = f32_to_f16((i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(i + 1) / 64);
    }
    tensors.set("a.qweight", DType::kI32, {5, N}, codes);
    tensors.set("a.qzeros", DType::kI32, {3, 3}, zeros);
    tensors.set("a.scales", DType::kF16, {3, N}, scales);
  }

  std::unique_ptr<QuantScheme> scheme() const {
    const std::string text = R"({"quant_method": "gptq", "bits": 4, "group_size": 16)" + fields;
    return kQuantGptq.detect(quant_config_of(HfConfig::parse(text + "}", "config.json")), tensors);
  }
  std::unique_ptr<StoredWeight> open() const { return scheme()->open(tensors, part, K); }
  std::vector<float> values() const { return dequantized_weight(*open(), part.out_features, K); }
  void set_g_idx(const std::vector<int32_t>& group_of) {
    tensors.set("a.g_idx", DType::kI32, {static_cast<int64_t>(group_of.size())}, group_of);
  }

  static constexpr int64_t K = 40;
  TensorsInMemory tensors;
  std::string fields = R"(, "sym": true, "desc_act": false)";
  LinearSpec::Part part = {.name = "a", .out_features = N, .stored_rows = N};
};

/// A shuffled g_idx: 16, 16 and 8 inputs in the groups.
std::vector<int32_t> shuffled_groups() {
  std::vector<int32_t> group_of;
  for (int32_t k = 0; k < 40; ++k) group_of.push_back(k % 5 == 0 ? 2 : k % 5 < 3 ? 1 : 0);
  return group_of;
}

TEST(GptqWeight, MeansScaleTimesCodeMinusZero) {
  const SmallLayer layer;
  const auto values = layer.values();
  const TensorView codes = layer.tensors.view(*layer.tensors.find("a.qweight"));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < SmallLayer::K; ++k) {
      uint32_t word = 0;
      std::memcpy(&word, codes.data + (k / 8 * N + n) * 4, 4);
      const auto code = static_cast<float>((word >> (k % 8 * 4)) & 15u);
      const int64_t i = k / 16 * N + n;
      const float scale = (i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(i + 1) / 64;
      EXPECT_EQ(values[static_cast<size_t>(n * SmallLayer::K + k)], scale * (code - 8));
    }
  }
}

TEST(GptqWeight, TellsWhatItIs) {
  SmallLayer layer;
  const auto weight = layer.open();
  const WeightDesc& desc = weight->desc();
  EXPECT_STREQ(desc.format, "gptq");
  EXPECT_EQ(desc.layout, PackedLayout::kU4Quad);
  EXPECT_EQ(desc.bits, 4);
  EXPECT_EQ(desc.group_size, 16);
  EXPECT_EQ(desc.stored_dtype, DType::kI32);
  EXPECT_TRUE(desc.is_symmetric);
  EXPECT_FALSE(desc.has_input_perm);
  EXPECT_EQ(desc.stored_bytes, 5 * N * 4 + 3 * 3 * 4 + 3 * N * 2);
  EXPECT_THAT(desc.tensor_names, ElementsAre("a.qweight", "a.qzeros", "a.scales"));
  EXPECT_THAT(weight->warnings(), IsEmpty());
  layer.fields = R"(, "sym": false)";
  EXPECT_FALSE(layer.open()->desc().is_symmetric);
}

TEST(GptqWeight, ReadsScalesOfThreeTypes) {
  SmallLayer layer;
  const std::vector<float> ones(3 * N, 1.0f);
  layer.tensors.set("a.scales", DType::kF32, {3, N}, ones);
  const std::vector<float> expected = layer.values();
  layer.tensors.set("a.scales", DType::kBf16, {3, N}, std::vector<uint16_t>(3 * N, 0x3F80));
  EXPECT_EQ(layer.values(), expected);
  layer.tensors.set("a.scales", DType::kF16, {3, N}, std::vector<uint16_t>(3 * N, 0x3C00));
  EXPECT_EQ(layer.values(), expected);
}

TEST(GptqWeight, SortsInputsByGroup) {
  SmallLayer layer;
  layer.fields = R"(, "sym": true, "desc_act": true)";
  const auto group_of = shuffled_groups();
  layer.set_g_idx(group_of);
  const auto weight = layer.open();
  EXPECT_TRUE(weight->desc().has_input_perm);
  EXPECT_THAT(weight->desc().tensor_names, SizeIs(4));
  const auto order = weight->input_perm();
  ASSERT_EQ(order.size(), group_of.size());
  ASSERT_NE(weight->desc().declared_perm, nullptr);  // decides which parts are joined
  EXPECT_EQ(*weight->desc().declared_perm, order);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto group = group_of[static_cast<size_t>(order[i])];
    EXPECT_EQ(group, static_cast<int32_t>(i / 16));
    const bool is_first = i % 16 == 0;
    EXPECT_TRUE(is_first || order[i] > order[i - 1]) << i;
  }
  layer.fields = R"(, "sym": true)";  // desc_act is missing: the data tell
  EXPECT_EQ(layer.open()->input_perm(), order);
}

TEST(GptqWeight, TakesAnAscendingGIdxAsNone) {
  SmallLayer layer;
  std::vector<int32_t> group_of;
  for (int32_t k = 0; k < 40; ++k) group_of.push_back(k / 16);
  layer.set_g_idx(group_of);
  for (const char* act_order : {"false", "true", "null"}) {
    layer.fields = std::string(R"(, "sym": true, "desc_act": )") + act_order;
    EXPECT_FALSE(layer.open()->desc().has_input_perm);
  }
  layer.tensors.remove("a.g_idx");
  layer.fields = R"(, "desc_act": true)";
  EXPECT_THAT(
      [&] { layer.open(); },
      ThrowsMessage<CheckpointError>(StartsWith(
          "layer \"a\" (bits 4, group_size 16, 40 inputs): tensors: tensor \"a.g_idx\": expected a "
          "tensor of shape [40], got none.")));
}

TEST(GptqWeight, RejectsBadGIdx) {
  const auto expect_error = [](const std::function<void(std::vector<int32_t>&)>& change,
                               const std::string& act_order, const std::string& text) {
    SmallLayer layer;
    layer.fields = R"(, "desc_act": )" + act_order;
    std::vector<int32_t> group_of = shuffled_groups();
    change(group_of);
    layer.set_g_idx(group_of);
    EXPECT_THAT([&] { layer.open(); }, ThrowsMessage<CheckpointError>(HasSubstr(
                                           "tensors: layer \"a\": tensor \"a.g_idx\": " + text)));
  };
  expect_error([](auto& group_of) { group_of[5] = 3; }, "true",
               "expected a group in [0, 3), got 3 at [5].");
  expect_error([](auto& group_of) { group_of[7] = -1; }, "true",
               "expected a group in [0, 3), got -1 at [7].");
  expect_error([](auto& group_of) { group_of[0] = 1; }, "true",
               "expected 16 inputs in group 1, got 17.");
  expect_error([](auto& group_of) { group_of[1] = 0; }, "true",
               "expected 16 inputs in group 0, got 17.");
  expect_error([](auto&) {}, "false",
               "expected groups in ascending order, since field 'desc_act' is false, got 1 after 2 "
               "at [1]. State desc_act true");
}

TEST(GptqWeight, DecidesBetweenZeroConventionsByTheData) {
  SmallLayer layer;
  const auto expected = layer.values();
  layer.fields = R"(, "sym": true, "checkpoint_format": "gptq_v2")";
  auto weight = layer.open();
  EXPECT_EQ(dequantized_weight(*weight, N, SmallLayer::K), expected);
  EXPECT_THAT(weight->warnings(),
              ElementsAre("tensors: layer \"a\": tensor \"a.qzeros\": expected 8 in all fields, as "
                          "field 'checkpoint_format' (gptq_v2) stores symmetric weights, got 7, "
                          "which is gptq. Read as gptq; correct the configuration."));
  layer.tensors.set("a.qzeros", DType::kI32, {3, 3}, std::vector<uint32_t>(9, 0x88888888u));
  weight = layer.open();
  EXPECT_EQ(dequantized_weight(*weight, N, SmallLayer::K), expected);
  EXPECT_THAT(weight->warnings(), IsEmpty());
  layer.fields = R"(, "sym": true, "checkpoint_format": "gptq")";
  EXPECT_EQ(layer.values(), expected);
  EXPECT_THAT(layer.open()->warnings(), SizeIs(1));
  layer.part.row_begin = 5, layer.part.out_features = 2;  // the first part has said it
  EXPECT_THAT(layer.open()->warnings(), IsEmpty());
  // Without symmetry the data cannot tell, and the label counts.
  layer.part = {.name = "a", .out_features = N, .stored_rows = N};
  layer.fields = R"(, "sym": false)";
  EXPECT_NE(layer.values(), expected);
  EXPECT_THAT(layer.open()->warnings(), IsEmpty());
}

TEST(GptqWeight, RejectsZerosThatAreNotSymmetric) {
  SmallLayer layer;
  std::vector<uint32_t> zeros(9, 0x77777777u);
  zeros[4] = 0x77677777u;
  layer.tensors.set("a.qzeros", DType::kI32, {3, 3}, zeros);
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": tensor \"a.qzeros\": expected one zero point in the "
                  "middle, since field 'sym' is true, got 1 others among 72. State sym false if "
                  "the model was quantized so; else the file is damaged."));
  layer.fields = "";  // sym is missing: the data tell
  EXPECT_FALSE(layer.open()->desc().is_symmetric);
}

TEST(GptqWeight, WrapsZerosWithinTheirFields) {
  SmallLayer layer;
  layer.fields = R"(, "sym": false)";
  layer.tensors.set("a.qzeros", DType::kI32, {3, 3}, std::vector<uint32_t>(9, 0x7F7F7F7Fu));
  std::vector<float> groups(3 * 64);
  layer.open()->read_groups(0, N, groups.data());
  EXPECT_EQ(groups[32], 0);  // 15 + 1
  EXPECT_EQ(groups[33], 8);
}

TEST(GptqWeight, ReportsWordsThatTheWriterSpoilt) {
  SmallLayer layer;
  layer.fields = R"(, "sym": false)";
  const auto warnings = [&](uint32_t first, uint32_t second) {
    std::vector<uint32_t> zeros(9, 0x12345678u);
    zeros[0] = first, zeros[1] = second;
    layer.tensors.set("a.qzeros", DType::kI32, {3, 3}, zeros);
    return layer.open()->warnings();
  };
  const std::string text =
      "tensors: layer \"a\": tensor \"a.qzeros\": expected fields that were masked one by one, got "
      "1 words in which a field of all ones is followed by nothing but ones: the mark of tools "
      "that spoil the rest of a word where a zero point is 0. Compare the model's quality, and "
      "quantize it again as gptq_v2 if it suffered.";
  EXPECT_THAT(warnings(0xFFFFFF27u, 0), ElementsAre(text));
  EXPECT_THAT(warnings(0xFF234567u, 0), ElementsAre(text));
  EXPECT_THAT(warnings(0xF1234567u, 0), IsEmpty());            // nothing lies behind the field
  EXPECT_THAT(warnings(0xFF234567u, 0x000F0000u), IsEmpty());  // this writer masks
  EXPECT_THAT(warnings(0xFFFFFF27u, 0x000F0000u), ElementsAre(text));  // a run too long for chance
  layer.fields = R"(, "sym": false, "checkpoint_format": "gptq_v2")";
  EXPECT_THAT(warnings(0xFFFFFF27u, 0), IsEmpty());
}

TEST(GptqWeight, RejectsScalesThatNobodyMeans) {
  for (const float scale : {0.0f, -0.0f, std::numeric_limits<float>::infinity(), NAN}) {
    SmallLayer layer;
    std::vector<float> scales(3 * N, 1.0f);
    scales[2 * N + 4] = scale;
    layer.tensors.set("a.scales", DType::kF32, {3, N}, scales);
    const auto weight = layer.open();
    EXPECT_THAT([&] { weight->check_data(); },
                ThrowsMessage<CheckpointError>(testing::AllOf(
                    StartsWith("tensors: layer \"a\": tensor \"a.scales\": expected finite scales "
                               "other than zero, got "),
                    HasSubstr(" at [2, 4]."))));
    layer.part.row_begin = 5, layer.part.out_features = 3;  // rows that do not use it
    layer.open()->check_data();
  }
}

TEST(GptqWeight, RejectsTensorsOfOtherShapesAndTypes) {
  const auto expect_error = [](const std::function<void(SmallLayer&)>& change,
                               const std::string& text) {
    SmallLayer layer;
    change(layer);
    EXPECT_THAT([&] { layer.open(); },
                ThrowsMessage<CheckpointError>(
                    HasSubstr("layer \"a\" (bits 4, group_size 16, 40 inputs): tensors: " + text)));
  };
  expect_error(
      [](auto& layer) {
        layer.tensors.set("a.qweight", DType::kI32, {4, N}, std::vector<int32_t>(4 * N));
      },
      "tensor \"a.qweight\": expected shape [5, 24], got [4, 24].");
  expect_error(
      [](auto& layer) {
        layer.tensors.set("a.qweight", DType::kF32, {5, N}, std::vector<int32_t>(5 * N));
      },
      "tensor \"a.qweight\": expected type i32, got f32.");
  expect_error([](auto& layer) { layer.tensors.remove("a.qzeros"); },
               "tensor \"a.qzeros\": expected a tensor of shape [3, 3], got none.");
  expect_error(
      [](auto& layer) {
        layer.tensors.set("a.scales", DType::kI16, {3, N}, std::vector<int16_t>(3 * N));
      },
      "tensor \"a.scales\": expected type f16, bf16 or f32, got i16.");
  expect_error(
      [](auto& layer) {
        layer.set_g_idx({0, 1});
      },
      "tensor \"a.g_idx\": expected shape [40], got [2].");
  expect_error([](auto& layer) { layer.tensors.remove("a.qweight"); },
               "tensor \"a.qweight\": expected a tensor of shape [5, 24], got none.");
}

TEST(GptqWeight, RejectsLayersThatTheConfigurationDescribesOtherwise) {
  SmallLayer layer;
  const std::vector<uint16_t> dense(N * 40);
  layer.tensors.set("a.weight", DType::kF16, {N, 40}, dense);
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": expected its weight once, got tensors \"a.qweight\" and "
                  "\"a.weight\". Remove one of them."));
  layer.tensors.remove("a.qweight");
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": expected quantized tensors, since field 'quant_method' "
                  "covers it and no field leaves it out, got full-precision ones. Correct the "
                  "configuration."));
  layer.part.is_usually_dense = true;
  EXPECT_EQ(layer.open()->desc().layout, PackedLayout::kF16Panel);
  layer.part.is_usually_dense = false;
  layer.fields = R"(, "dynamic": {"-:a": {}})";
  EXPECT_EQ(layer.open()->desc().bits, 16);
  layer.tensors.remove("a.weight");
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(StartsWith("tensors: tensor \"a.weight\": expected a "
                                                        "tensor of shape [24, 40], got none.")));
  const SmallLayer other;
  layer.tensors = other.tensors;
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("layer \"a\": expected full-precision tensors, since field 'dynamic' "
                            "holds \"-:a\", got quantized ones.")));
}

TEST(GptqWeight, RejectsQuantizedFusedExperts) {
  SmallLayer layer;
  layer.part.expert = 0, layer.part.num_stored_experts = 2;
  const auto is_rejected =
      ThrowsMessage<UnsupportedError>(HasSubstr("layer \"a\": expected experts in tensors of their "
                                                "own, got quantized ones fused in one tensor."));
  EXPECT_THAT([&] { layer.open(); }, is_rejected);
  EXPECT_THAT([&] { layer.scheme()->expected_tensors(layer.part, 40); }, is_rejected);
  layer.tensors.remove("a.qweight");
  layer.tensors.set("a", DType::kF16, {2, N, 40}, std::vector<uint16_t>(2 * N * 40));
  layer.fields = R"(, "dynamic": {"-:a": {}})";
  EXPECT_EQ(layer.open()->desc().bits, 16);
}

TEST(GptqWeight, RejectsTilesUnderAnotherLabelAndOddSizes) {
  SmallLayer layer;
  layer.tensors.remove("a.qweight");
  layer.tensors.set("a.B", DType::kI32, {1}, std::vector<int32_t>(1));
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": expected tensor \"a.qweight\", got \"a.B\", which Marlin "
                  "tiles have. State checkpoint_format marlin."));
  layer.fields = R"(, "checkpoint_format": "marlin")";
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<UnsupportedError>(
                  "layer \"a\": expected sizes of whole Marlin tiles, a multiple of 64 outputs and "
                  "of 16 inputs, got 24 and 40. Use a checkpoint of checkpoint_format gptq."));
}

TEST(GptqWeight, RejectsScalesOfTilesThatNobodyMeans) {
  SmallLayer layer;
  layer.part = {.name = "a", .out_features = 64, .stored_rows = 64};
  layer.fields = R"(, "checkpoint_format": "marlin")";
  layer.tensors.set("a.B", DType::kI32, {1, 128}, std::vector<int32_t>(128));
  std::vector<uint16_t> scales(64, 0x3C00);
  scales[9] = 0x7E00;
  layer.tensors.set("a.s", DType::kF16, {1, 64}, scales);
  const auto weight = layer.scheme()->open(layer.tensors, layer.part, 16);
  EXPECT_THAT([&] { weight->check_data(); }, ThrowsMessage<CheckpointError>(HasSubstr(
                                                 "tensor \"a.s\": expected finite scales other "
                                                 "than zero, got nan at [0, 9].")));
}

TEST(GptqWeight, NamesTheTensorsOfDummyWeights) {
  SmallLayer layer;
  const auto names = [&](const std::string& fields) {
    layer.fields = fields;
    std::string text;
    for (const TensorInfo& info : layer.scheme()->expected_tensors(layer.part, 48)) {
      text += str(info.name, " ", info.dtype, " ", info.shape, "; ");
    }
    return text;
  };
  EXPECT_EQ(names(""), "a.qweight i32 [6, 24]; a.qzeros i32 [3, 3]; a.scales f16 [3, 24]; ");
  EXPECT_EQ(names(R"(, "desc_act": true)"),
            "a.qweight i32 [6, 24]; a.qzeros i32 [3, 3]; a.scales f16 [3, 24]; a.g_idx i32 [48]; ");
  EXPECT_EQ(names(R"(, "dynamic": {"a": {"bits": 3, "group_size": -1}})"),
            "a.qweight i32 [5, 24]; a.qzeros i32 [1, 3]; a.scales f16 [1, 24]; ");
  EXPECT_EQ(names(R"(, "dynamic": {"-:a": {}})"), "a.weight f16 [24, 48]; ");
  layer.part.out_features = 64, layer.part.stored_rows = 64;
  EXPECT_EQ(names(R"(, "checkpoint_format": "marlin")"), "a.B i32 [3, 128]; a.s f16 [3, 64]; ");
}

}  // namespace
}  // namespace halley
