// Packed integers: every width and packing at odd sizes, slices, act-order, and damaged data.
#include "halley/quant/compressed_tensors/packed_rows.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A layer "a" written by the definition, bit by bit.
struct Layer {
  int64_t num_rows = 0, K = 0;
  GroupScheme scheme;
  MemoryTensors tensors;
  std::vector<float> values;

  int64_t group_size() const { return scheme.group_size > 0 ? scheme.group_size : K; }
  std::unique_ptr<StoredWeight> open() const {
    return open_packed_rows(tensors, whole_part("a", num_rows), K, scheme);
  }
};

/// Value `index` of a run of words that lie `stride` apart.
void set_code(std::vector<uint32_t>& words, int64_t first, int64_t stride, int64_t index,
              const std::pair<int, WordPacking>& bits_and_packing, uint32_t code) {
  const auto [bits, packing] = bits_and_packing;
  for (int bit = 0; bit < bits; ++bit) {
    int64_t word = (index * bits + bit) / 32, shift = (index * bits + bit) % 32;
    if (packing == WordPacking::kPadded) {
      word = index / (32 / bits);
      shift = index % (32 / bits) * bits + bit;
    }
    words[static_cast<size_t>(first + word * stride)] |= ((code >> bit) & 1u) << shift;
  }
}

Layer make_layer(int64_t num_rows, int64_t K, const GroupScheme& scheme,
                 WordPacking packing = WordPacking::kDense) {
  Layer layer = {.num_rows = num_rows, .K = K, .scheme = scheme, .tensors = {}, .values = {}};
  const int bits = scheme.bits;
  const int64_t G = layer.group_size(), num_groups = (K + G - 1) / G;
  const int64_t row_words = num_words(K, bits, packing);
  const int64_t column_words = num_words(num_rows, bits, packing);
  std::vector<uint32_t> words(static_cast<size_t>(num_rows * row_words));
  std::vector<uint32_t> zero_words(static_cast<size_t>(column_words * num_groups));
  std::vector<float> scales;
  std::vector<uint32_t> zeros;
  uint32_t state = 7;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
  for (int64_t i = 0; i < num_rows * num_groups; ++i) {
    scales.push_back(static_cast<float>(1 + next() % 9) / 8);
    zeros.push_back(scheme.is_symmetric ? 1u << (bits - 1) : next() % (1u << bits));
    set_code(zero_words, i % num_groups, num_groups, i / num_groups, {bits, packing}, zeros.back());
  }
  for (int64_t n = 0; n < num_rows; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      const uint32_t code = next() % (1u << bits);
      set_code(words, n * row_words, 1, k, {bits, packing}, code);
      // Scattered groups: input k is of group k mod num_groups (K a multiple of the group size).
      const int64_t g = scheme.has_input_perm ? k % num_groups : k / G;
      const auto at = static_cast<size_t>(n * num_groups + g);
      layer.values.push_back(scales[at] *
                             (static_cast<float>(code) - static_cast<float>(zeros[at])));
    }
  }
  layer.tensors.add("a.weight_packed", DType::kI32, {num_rows, row_words}, words);
  layer.tensors.add("a.weight_scale", DType::kF32, {num_rows, num_groups}, scales);
  layer.tensors.add<int64_t>("a.weight_shape", DType::kI64, {2}, {num_rows, K});
  if (!scheme.is_symmetric) {
    layer.tensors.add("a.weight_zero_point", DType::kI32, {column_words, num_groups}, zero_words);
  }
  if (scheme.has_input_perm) {
    std::vector<int32_t> index;
    for (int64_t k = 0; k < K; ++k) index.push_back(static_cast<int32_t>(k % num_groups));
    layer.tensors.add("a.weight_g_idx", DType::kI32, {K}, index);
  }
  return layer;
}

GroupScheme scheme_of(int bits, int64_t group_size, bool is_symmetric) {
  GroupScheme scheme;
  scheme.path = "config_groups.g";
  scheme.bits = bits;
  scheme.group_size = group_size;
  scheme.is_symmetric = is_symmetric;
  return scheme;
}

TEST(PackedRows, ReadsEveryWidthAtOddSizes) {
  for (const int bits : {2, 3, 4, 8}) {
    for (const int64_t K : {1, 5, 32, 63, 96, 131}) {
      for (const int64_t group_size : {0, 1, 24, 200}) {
        for (const bool is_symmetric : {true, false}) {
          const Layer layer = make_layer(31, K, scheme_of(bits, group_size, is_symmetric));
          EXPECT_EQ(dequantized(*layer.open(), 31, K), layer.values)
              << bits << " bits, K " << K << ", group " << group_size;
        }
      }
    }
  }
}

TEST(PackedRows, TellsPaddedWordsByTheirNumber) {
  for (const int64_t K : {32, 64, 160, 331}) {
    for (const WordPacking packing : {WordPacking::kDense, WordPacking::kPadded}) {
      const Layer layer = make_layer(33, K, scheme_of(3, 32, false), packing);
      EXPECT_EQ(dequantized(*layer.open(), 33, K), layer.values) << K;
    }
  }
}

TEST(PackedRows, ZerosTellWhereTheWeightDoesNot) {
  for (const WordPacking packing : {WordPacking::kDense, WordPacking::kPadded}) {
    const Layer layer = make_layer(64, 60, scheme_of(3, 32, false), packing);
    EXPECT_EQ(dequantized(*layer.open(), 64, 60), layer.values);
  }
}

TEST(PackedRows, RejectsToGuessThePacking) {
  const Layer layer = make_layer(64, 60, scheme_of(3, 32, true));
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<UnsupportedError>(
                  "model: tensor \"a.weight_packed\": expected a number of words that tells how 3 "
                  "bits are packed, got 6 for 60 inputs, which dense and padded words both have. "
                  "Quantize the model again with 4 bits."));
}

TEST(PackedRows, TakesRowsOfAStoredTensor) {
  for (const int bits : {2, 3, 4, 8}) {
    const Layer layer = make_layer(70, 96, scheme_of(bits, 32, false));
    LinearSpec::Part part = whole_part("a", 70);
    part.row_begin = 19;
    part.out_features = 44;
    const auto weight = open_packed_rows(layer.tensors, part, 96, layer.scheme);
    EXPECT_EQ(dequantized(*weight, 44, 96),
              std::vector<float>(layer.values.begin() + 19 * 96, layer.values.begin() + 63 * 96));
    const double whole_bytes = layer.open()->desc().stored_bytes;
    EXPECT_NEAR(weight->desc().stored_bytes, whole_bytes * 44 / 70, 1e-6);
  }
}

TEST(PackedRows, BringsTheInputsOfAGroupTogether) {
  GroupScheme scheme = scheme_of(4, 4, false);
  scheme.has_input_perm = true;
  const Layer layer = make_layer(9, 12, scheme);
  const auto weight = layer.open();
  EXPECT_THAT(weight->input_perm(), ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
  EXPECT_EQ(dequantized(*weight, 9, 12), layer.values);
}

TEST(PackedRows, RejectsBadGIdx) {
  GroupScheme scheme = scheme_of(4, 4, true);
  scheme.has_input_perm = true;
  Layer layer = make_layer(9, 12, scheme);
  const auto expect_failure = [&](const std::vector<int32_t>& index, const std::string& text) {
    layer.tensors.add("a.weight_g_idx", DType::kI32, {12}, index);
    EXPECT_THAT([&] { layer.open()->check_data(); },
                ThrowsMessage<CheckpointError>(
                    AllOf(HasSubstr("model: tensor \"a.weight_g_idx\": expected " + text),
                          HasSubstr("The file is damaged"))));
  };
  expect_failure({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3}, "groups in [0, 3), got 3 at 11.");
  expect_failure({0, -1, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, "groups in [0, 3), got -1 at 1.");
  expect_failure({0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2}, "4 inputs of group 0, got 5.");
  layer.tensors.remove("a.weight_g_idx");
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(HasSubstr(
                  "tensor \"a.weight_g_idx\": expected a tensor of shape [12], got none")));
}

TEST(PackedRows, TheLastGroupOfAGIdxMayBeSmaller) {
  GroupScheme scheme = scheme_of(4, 4, true);
  scheme.has_input_perm = true;
  Layer layer = make_layer(2, 12, scheme);
  const std::vector<int32_t> index = {2, 0, 1, 0, 1, 0, 1, 0, 1, 2};
  layer.tensors.add_bytes("a.weight_packed", DType::kI32, {2, 2});
  layer.tensors.remove("a.weight_shape");
  layer.tensors.add("a.weight_g_idx", DType::kI32, {10}, index);
  const auto weight = open_packed_rows(layer.tensors, whole_part("a", 2), 10, scheme);
  EXPECT_NO_THROW(weight->check_data());
  EXPECT_THAT(weight->input_perm(), ElementsAre(1, 3, 5, 7, 2, 4, 6, 8, 0, 9));
}

TEST(PackedRows, RejectsTensorsThatTheSchemeRulesOut) {
  Layer layer = make_layer(8, 32, scheme_of(4, 16, false));
  layer.scheme.is_symmetric = true;
  EXPECT_THAT(
      [&] { layer.open(); },
      ThrowsMessage<CheckpointError>(
          "model: tensor \"a.weight_zero_point\": expected none, since 'config_groups.g' is "
          "symmetric, got i32 [1, 2]. Correct the configuration or the file."));
  layer = make_layer(8, 32, scheme_of(4, 16, true));
  layer.tensors.add_bytes("a.weight_g_idx", DType::kI32, {32});
  EXPECT_THAT([&] { layer.open(); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("tensor \"a.weight_g_idx\": expected none, since 'config_groups.g' has "
                            "no actorder \"group\", got i32 [32].")));
}

TEST(PackedRows, RejectsShapesThatDisagree) {
  Layer layer = make_layer(8, 32, scheme_of(4, 16, false));
  const auto expect_failure = [](const Layer& bad, const std::string& text) {
    EXPECT_THAT([&] { bad.open(); }, ThrowsMessage<CheckpointError>(HasSubstr(text)));
  };
  Layer bad = layer;
  bad.tensors.add<int64_t>("a.weight_shape", DType::kI64, {2}, {8, 33});
  expect_failure(bad,
                 "model: tensor \"a.weight_shape\": expected [8, 32], got [8, 33]. Check that "
                 "config.json");
  bad.tensors.add<int32_t>("a.weight_shape", DType::kI32, {2}, {-8, 32});
  expect_failure(bad, "\"a.weight_shape\": expected [8, 32], got [-8, 32]");
  bad = layer;
  bad.scheme.bits = 8;
  expect_failure(bad, "tensor \"a.weight_packed\": expected shape [8, 8], got [8, 4]");
  bad = layer;
  bad.scheme.group_size = 8;
  expect_failure(bad, "tensor \"a.weight_scale\": expected shape [8, 4], got [8, 2]");
  bad = layer;
  bad.tensors.add_bytes("a.weight_zero_point", DType::kI32, {2, 2});
  expect_failure(bad, "tensor \"a.weight_zero_point\": expected shape [1, 2], got [2, 2]");
  bad = layer;
  bad.tensors.add_bytes("a.weight_scale", DType::kI8, {8, 2});
  expect_failure(bad, "tensor \"a.weight_scale\": expected type f32, f16 or bf16, got i8");
}

TEST(PackedRows, RejectsBadScalesByTheirIndex) {
  for (const float value : {0.0f, NAN, std::numeric_limits<float>::infinity()}) {
    Layer layer = make_layer(4, 32, scheme_of(4, 16, true));
    std::vector<float> scales(8, 1.0f);
    scales[5] = value;
    layer.tensors.add("a.weight_scale", DType::kF32, {4, 2}, scales);
    EXPECT_THAT([&] { layer.open()->check_data(); },
                ThrowsMessage<CheckpointError>(AllOf(
                    HasSubstr("model: tensor \"a.weight_scale\": expected finite numbers other "
                              "than zero, got "),
                    HasSubstr(" at [2, 1]."))));
  }
}

TEST(PackedRows, DescribesWhatItReads) {
  GroupScheme scheme = scheme_of(4, 16, false);
  scheme.activation = ActivationQuant::kS8Static;
  Layer layer = make_layer(8, 32, scheme);
  layer.tensors.fill("a.input_scale", {1}, 0.5f);
  const auto weight = layer.open();
  const WeightDesc& desc = weight->desc();
  EXPECT_EQ(desc.layout, PackedLayout::kU4Quad);
  EXPECT_EQ(desc.bits, 4);
  EXPECT_EQ(desc.group_size, 16);
  EXPECT_FALSE(desc.is_symmetric);
  EXPECT_EQ(desc.activation_scale, 0.5f);
  EXPECT_THAT(desc.tensor_names, ElementsAre("a.weight_packed", "a.weight_scale", "a.weight_shape",
                                             "a.weight_zero_point", "a.input_scale"));
}

TEST(PackedRows, ExpectedTensorsCanBeOpened) {
  for (const int bits : {2, 3, 4, 8}) {
    GroupScheme scheme = scheme_of(bits, 32, false);
    scheme.has_input_perm = true;
    MemoryTensors tensors;
    for (const TensorInfo& info : expected_packed_tensors(whole_part("a", 10), 96, scheme)) {
      tensors.add_bytes(info.name, info.dtype, info.shape);
    }
    const auto weight = open_packed_rows(tensors, whole_part("a", 10), 96, scheme);
    EXPECT_EQ(weight->desc().tensor_names.size(), tensors.tensors().size());
  }
}

}  // namespace
}  // namespace halley
