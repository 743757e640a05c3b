// Weights of AWQ checkpoints: the goldens, slices of them, and damaged tensors.
#include "halley/quant/awq/awq.h"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/base/testing/tensors_in_memory.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr const char* kGoldens[] = {
    "awq_gemm_g128", "awq_gemm_g32",    "awq_gemv_fast_g128",    "awq_gemv_g128",
    "awq_gemv_g32",  "awq_llm_awq_g64", "awq_quant_config_file", "awq_skip_o_proj",
};

TEST(AwqGoldens, LoadBitForBit) {
  for (const char* name : kGoldens) expect_golden_weights(kQuantAwq, name);
}

/// A part of some rows of a stored tensor has the values of these rows of the whole.
TEST(AwqGoldens, SlicesOfStoredTensorsHaveTheirRows) {
  for (const char* name : {"awq_gemm_g32", "awq_gemv_g32", "awq_gemv_fast_g128"}) {
    SCOPED_TRACE(name);
    const GoldenCheckpoint golden(name);
    const auto scheme = kQuantAwq.detect(golden.quant, *golden.source);
    LinearSpec spec = linear_spec_of(golden.expected.at("linears")[0]);
    LinearSpec::Part& part = spec.parts[0];
    const int64_t K = spec.in_features, num_rows = part.stored_rows;
    const auto whole = scheme->open(*golden.source, part, K);
    const std::vector<float> all = dequantized_weight(*whole, num_rows, K);
    WeightHash hash;
    for (const float number : all) hash.add(number);
    EXPECT_EQ(hash.text(), golden.expected.at("linears")[0].at("hash").get<std::string>());
    for (const int64_t begin : {int64_t{3}, int64_t{15}, int64_t{64}}) {
      part.row_begin = begin;
      part.out_features = num_rows - begin - 1;
      const auto slice = scheme->open(*golden.source, part, K);
      const std::vector<float> rows(all.begin() + begin * K, all.begin() + (num_rows - 1) * K);
      EXPECT_EQ(dequantized_weight(*slice, part.out_features, K), rows) << begin;
      EXPECT_DOUBLE_EQ(slice->desc().stored_bytes, whole->desc().stored_bytes *
                                                       static_cast<double>(part.out_features) /
                                                       static_cast<double>(num_rows));
    }
  }
}

// ---- tensors of a test -------------------------------------------------------------------------

constexpr int64_t N = 16, K = 72, kGroups = 3;

/// A layer "a" of version gemm with 16 outputs and 72 inputs in groups of 24.
struct SmallLayer {
  SmallLayer() {
    std::vector<uint32_t> codes(K * N / 8), zeros(kGroups * N / 8);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint32_t>(i) * 0x9E3779B9u;
    for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = static_cast<uint32_t>(i) * 0x85EBCA6Bu;
    tensors.set("a.qweight", DType::kI32, {K, N / 8}, codes);
    tensors.set("a.qzeros", DType::kI32, {kGroups, N / 8}, zeros);
    tensors.set("a.scales", DType::kF16, {kGroups, N}, scales(kGroups * N));
  }
  static std::vector<uint16_t> scales(int64_t count) {
    std::vector<uint16_t> values;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(f32_to_f16((i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(i + 1) / 64));
    }
    return values;
  }

  std::unique_ptr<QuantScheme> scheme() const {
    const std::string text = R"({"quant_method": "awq", "bits": 4, "group_size": )" + fields + "}";
    return kQuantAwq.detect(quant_config_of(HfConfig::parse(text, "config.json")), tensors);
  }
  std::unique_ptr<StoredWeight> open() const { return scheme()->open(tensors, part, K); }

  TensorsInMemory tensors;
  std::string fields = R"(24, "version": "gemm", "zero_point": true)";
  LinearSpec::Part part = {.name = "a", .out_features = N, .stored_rows = N};
};

TEST(AwqWeight, MeansScaleTimesCodeMinusZero) {
  const SmallLayer layer;
  const auto values = dequantized_weight(*layer.open(), N, K);
  const auto scales = SmallLayer::scales(kGroups * N);
  for (int64_t n = 0; n < N; ++n) {
    const int nibble = std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7}[static_cast<size_t>(n % 8)];
    for (int64_t k = 0; k < K; ++k) {
      const auto code = (static_cast<uint32_t>(k * 2 + n / 8) * 0x9E3779B9u >> (4 * nibble)) & 15u;
      const int64_t group = k / 24;
      const auto zero =
          (static_cast<uint32_t>(group * 2 + n / 8) * 0x85EBCA6Bu >> (4 * nibble)) & 15u;
      const float scale = f16_to_f32(scales[static_cast<size_t>(group * N + n)]);
      EXPECT_EQ(values[static_cast<size_t>(n * K + k)],
                scale * (static_cast<float>(code) - static_cast<float>(zero)));
    }
  }
}

TEST(AwqWeight, TellsWhatItIs) {
  SmallLayer layer;
  const auto weight = layer.open();
  const WeightDesc& desc = weight->desc();
  EXPECT_STREQ(desc.format, "awq");
  EXPECT_EQ(desc.layout, PackedLayout::kU4Quad);
  EXPECT_EQ(desc.bits, 4);
  EXPECT_EQ(desc.group_size, 24);
  EXPECT_EQ(desc.stored_dtype, DType::kI32);
  EXPECT_EQ(desc.zero_kind, ZeroKind::kPoint);
  EXPECT_FALSE(desc.is_symmetric);
  EXPECT_EQ(desc.stored_bytes, K * N / 2 + kGroups * N / 2 + kGroups * N * 2);
  EXPECT_THAT(desc.tensor_names, ElementsAre("a.qweight", "a.scales", "a.qzeros"));
}

TEST(AwqWeight, HasTheMiddleAsZeroWhereThereAreNoZeroPoints) {
  SmallLayer layer;
  layer.fields = R"(24, "version": "gemm", "zero_point": false)";
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": expected no zero points, since field 'zero_point' is "
                  "false, got tensor \"a.qzeros\". Correct the field."));
  layer.tensors.remove("a.qzeros");
  const auto weight = layer.open();
  EXPECT_TRUE(weight->desc().is_symmetric);
  std::vector<float> groups(kGroups * 64);
  weight->read_groups(0, N, groups.data());
  EXPECT_EQ(groups[32], 8);
  layer.fields = R"(24, "version": "gemm")";
  EXPECT_THAT([&] { layer.open(); }, ThrowsMessage<CheckpointError>(StartsWith(
                                         "layer \"a\" (group_size 24, 72 inputs): tensors: tensor "
                                         "\"a.qzeros\": expected a tensor of "
                                         "shape [3, 2], got none.")));
}

/// The same layer by features: 72 inputs in one group.
SmallLayer layer_by_features() {
  SmallLayer layer;
  layer.fields = R"(-1, "version": "gemv")";
  std::vector<uint32_t> codes(N * K / 8);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint32_t>(i) * 0x9E3779B9u;
  layer.tensors.set("a.qweight", DType::kI32, {N, K / 8}, codes);
  layer.tensors.set("a.qzeros", DType::kI32, {N, 2}, std::vector<uint32_t>(N * 2, 5));
  std::vector<float> scales(N * 16, 0.0f);  // the padding is not looked at
  for (size_t n = 0; n < N; ++n) scales[n * 16] = 1.0f;
  layer.tensors.set("a.scales", DType::kF32, {N, 16}, scales);
  return layer;
}

TEST(AwqWeight, ReadsWordsByFeatureWithPaddedGroups) {
  const SmallLayer layer = layer_by_features();
  const auto values = dequantized_weight(*layer.open(), N, K);
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      const auto word = static_cast<uint32_t>(n * K / 8 + k / 8) * 0x9E3779B9u;
      EXPECT_EQ(values[static_cast<size_t>(n * K + k)],
                static_cast<float>((word >> (4 * (k % 8))) & 15u) - 5);
    }
  }
}

TEST(AwqWeight, DecidesTheLayoutByTheTensorsWhereNothingSaysIt) {
  SmallLayer by_input;
  by_input.fields = "24";
  EXPECT_EQ(by_input.open()->desc().group_size, 24);
  SmallLayer by_feature = layer_by_features();
  by_feature.fields = "-1";
  EXPECT_EQ(by_feature.open()->desc().group_size, K);
  by_feature.fields = R"(-1, "version": "gemm", "backend": "llm-awq")";
  EXPECT_EQ(by_feature.open()->desc().group_size, K);
  by_feature.fields = R"(-1, "version": "gemm")";
  EXPECT_THAT([&] { by_feature.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": tensor \"a.qweight\": expected the layout that field "
                  "'version' says, gemm, got i32 [16, 9], which is gemv. Correct the field."));
}

TEST(AwqWeight, RejectsTensorsOfOtherShapesAndTypes) {
  const auto expect_error = [](const std::function<void(SmallLayer&)>& change,
                               const std::string& text) {
    SmallLayer layer;
    change(layer);
    EXPECT_THAT([&] { layer.open(); },
                ThrowsMessage<CheckpointError>(
                    HasSubstr("layer \"a\" (group_size 24, 72 inputs): tensors: " + text)));
  };
  expect_error(
      [](auto& layer) {
        layer.tensors.set("a.qweight", DType::kI32, {K, 3}, std::vector<int32_t>(K * 3));
      },
      "tensor \"a.qweight\": expected shape [72, 2], got [72, 3].");
  expect_error(
      [](auto& layer) {
        layer.tensors.set("a.qweight", DType::kF32, {K, 2}, std::vector<int32_t>(K * 2));
      },
      "tensor \"a.qweight\": expected type i32, got f32.");
  expect_error([](auto& layer) { layer.tensors.remove("a.scales"); },
               "tensor \"a.scales\": expected a tensor of shape [3, 16], got none.");
  expect_error([](auto& layer) { layer.tensors.remove("a.qweight"); },
               "tensor \"a.qweight\": expected a tensor of shape [72, 2], got none.");
}

TEST(AwqWeight, RejectsSizesThatTheLayoutCannotHold) {
  SmallLayer layer;
  layer.fields = R"(48, "version": "gemm")";
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "layer \"a\": field 'group_size': expected a divisor of the layer's 72 inputs, "
                  "got 48. State the group size that its tool used."));
  layer.fields = R"(24, "version": "gemv_fast")";
  layer.tensors.remove("a.qzeros");
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "layer \"a\": expected sizes that version gemv_fast can hold, a multiple of 4 "
                  "outputs and of 64 inputs, got 16 and 72. Check that config.json belongs to "
                  "these weights."));
}

TEST(AwqWeight, RejectsScalesThatNobodyMeans) {
  for (const float scale : {0.0f, -0.0f, INFINITY, NAN}) {
    SmallLayer layer;
    std::vector<float> scales(kGroups * N, 1.0f);
    scales[2 * N + 4] = scale;
    layer.tensors.set("a.scales", DType::kF32, {kGroups, N}, scales);
    EXPECT_THAT([&] { layer.open()->check_data(); },
                ThrowsMessage<CheckpointError>(
                    AllOf(StartsWith("tensors: layer \"a\": tensor \"a.scales\": expected finite "
                                     "scales other than zero, got "),
                          HasSubstr(" at [2, 4]."))));
    layer = layer_by_features();
    scales.assign(N * 16, 1.0f);
    scales[5 * 16] = scale, scales[6 * 16 + 1] = scale;
    layer.tensors.set("a.scales", DType::kF32, {N, 16}, scales);
    EXPECT_THAT([&] { layer.open()->check_data(); },
                ThrowsMessage<CheckpointError>(HasSubstr(" at [5, 0].")));
    layer.part.row_begin = 6, layer.part.out_features = 4;  // only padding is bad
    layer.open()->check_data();
  }
}

TEST(AwqWeight, ReadsInterleavedWordsAndRejectsScaledZerosThatAreNaN) {
  constexpr int64_t kRows = 4, kInputs = 64;
  SmallLayer layer;
  layer.part = {.name = "a", .out_features = kRows, .stored_rows = kRows};
  layer.fields = R"(64, "version": "gemv_fast")";
  std::vector<uint16_t> codes(kRows / 4 * kInputs, 0);
  codes[16 * 2 + 8 + 5] = 0x4321;  // row 2, inputs 32 + 5 + (0, 8, 16, 24)
  layer.tensors.set("a.qweight", DType::kI16, {kRows / 4, kInputs}, codes);
  layer.tensors.set("a.scales", DType::kF32, {16, kRows}, std::vector<float>(16 * kRows, 2.0f));
  std::vector<float> zeros(16 * kRows, -0.5f);
  layer.tensors.set("a.qzeros", DType::kF32, {16, kRows}, zeros);
  const auto open = [&] { return layer.scheme()->open(layer.tensors, layer.part, kInputs); };
  const auto weight = open();
  EXPECT_EQ(weight->desc().zero_kind, ZeroKind::kOffset);
  EXPECT_EQ(weight->desc().stored_dtype, DType::kI16);
  std::vector<float> expected(kRows * kInputs, -0.5f);
  for (size_t i = 0; i < 4; ++i) {
    expected[2 * kInputs + 37 + 8 * i] = 2.0f * static_cast<float>(i + 1) - 0.5f;
  }
  EXPECT_EQ(dequantized_weight(*weight, kRows, kInputs), expected);
  zeros[kRows + 1] = NAN;  // padding
  zeros[3] = NAN;
  layer.tensors.set("a.qzeros", DType::kF32, {16, kRows}, zeros);
  EXPECT_THAT([&] { open()->check_data(); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("tensor \"a.qzeros\": expected finite numbers, got nan at [0, 3].")));
  layer.part.out_features = 3;
  open()->check_data();
}

TEST(AwqWeight, RejectsLayersThatTheConfigurationDescribesOtherwise) {
  SmallLayer layer;
  layer.tensors.set("a.weight", DType::kF16, {N, K}, std::vector<uint16_t>(N * K));
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": expected its weight once, got tensors \"a.qweight\" and "
                  "\"a.weight\". Remove one of them."));
  layer.tensors.remove("a.qweight");
  EXPECT_EQ(layer.open()->desc().bits, 16);  // nothing is listed: the tensors decide
  layer.fields = R"(24, "modules_to_not_convert": ["visual"])";
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  "tensors: layer \"a\": expected quantized tensors, since field "
                  "'modules_to_not_convert' holds nothing that is part of its name, got "
                  "full-precision ones. Correct the configuration."));
  layer.part.is_usually_dense = true;
  EXPECT_EQ(layer.open()->desc().bits, 16);
  layer.tensors.remove("a.weight");
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(StartsWith("tensors: tensor \"a.weight\": expected a "
                                                        "tensor of shape [16, 72], got none.")));
  const SmallLayer other;
  layer.tensors = other.tensors;
  layer.fields = R"(24, "modules_to_not_convert": ["visual", "a"])";
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("layer \"a\": expected full-precision tensors, since field "
                            "'modules_to_not_convert' holds \"a\", got quantized ones.")));
}

TEST(AwqWeight, RejectsQuantizedFusedExperts) {
  SmallLayer layer;
  layer.part.expert = 0, layer.part.num_stored_experts = 2;
  const auto is_rejected =
      ThrowsMessage<UnsupportedError>(HasSubstr("layer \"a\": expected experts in tensors of their "
                                                "own, got quantized ones fused in one tensor."));
  EXPECT_THAT([&] { layer.open(); }, is_rejected);
  EXPECT_THAT([&] { layer.scheme()->expected_tensors(layer.part, K); }, is_rejected);
  layer.tensors.remove("a.qweight");
  layer.tensors.set("a", DType::kF16, {2, N, K}, std::vector<uint16_t>(2 * N * K));
  EXPECT_EQ(layer.open()->desc().bits, 16);
}

TEST(AwqWeight, NamesTheTensorsOfDummyWeights) {
  SmallLayer layer;
  const auto names = [&](const std::string& fields) {
    layer.fields = fields;
    std::string text;
    for (const TensorInfo& info : layer.scheme()->expected_tensors(layer.part, 1024)) {
      text += str(info.name, " ", info.dtype, " ", info.shape, "; ");
    }
    return text;
  };
  EXPECT_EQ(names(R"(32, "version": "exllama")"),
            "a.qweight i32 [1024, 2]; a.scales f16 [32, 16]; a.qzeros i32 [32, 2]; ");
  EXPECT_EQ(names("-1"), "a.qweight i32 [1024, 2]; a.scales f16 [1, 16]; a.qzeros i32 [1, 2]; ");
  EXPECT_EQ(names(R"(64, "version": "gemv")"),
            "a.qweight i32 [16, 128]; a.scales f16 [16, 16]; a.qzeros i32 [16, 2]; ");
  EXPECT_EQ(names(R"(128, "version": "llm-awq")"),
            "a.qweight i16 [4, 1024]; a.scales f16 [8, 16]; a.qzeros f16 [8, 16]; ");
  EXPECT_EQ(names(R"(128, "zero_point": false)"),
            "a.qweight i32 [1024, 2]; a.scales f16 [8, 16]; ");
  EXPECT_EQ(names(R"(128, "modules_to_not_convert": ["a"])"), "a.weight f16 [16, 1024]; ");
}

}  // namespace
}  // namespace halley
