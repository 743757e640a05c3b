// The quantized types of GGUF against the Python package gguf, bit for bit, and what is rejected.
#include "halley/quant/gguf/gguf.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/gguf/ggml_type.h"
#include "halley/checkpoint/safetensors/tensor_store.h"
#include "halley/checkpoint/weights/model_weights.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/gguf/block_layout.h"
#include "halley/quant/gguf/gguf_weight.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// testdata/gguf/types.gguf has these types in this order; each up_proj is dequantized in gate_proj.
constexpr const char* kTypes[] = {"F32",  "F16",    "BF16",   "Q4_0", "Q4_1", "Q5_0",
                                  "Q5_1", "Q8_0",   "Q2_K",   "Q3_K", "Q4_K", "Q5_K",
                                  "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
constexpr int64_t kNumRows = 3, K = 512;

std::unique_ptr<QuantScheme> detect(const TensorSource& source) {
  const HfConfig config =
      HfConfig::parse(R"({"quantization_config": {"quant_method": "gguf"}})", "config.json");
  return kQuantGguf.detect(read_quant_config(config, {}), source);
}

std::unique_ptr<QuantScheme> make_scheme() {
  TensorStore store;
  store.set("m.weight.q8_0", DType::kU8, {1, 34}, std::vector<std::byte>(34));
  return detect(store);
}

LinearSpec::Part part_of(std::string name, int64_t row_begin, int64_t num_rows) {
  return {.name = std::move(name),
          .out_features = num_rows,
          .row_begin = row_begin,
          .stored_rows = kNumRows};
}

/// The rows, each value with the one rounding that the layout's kernels have.
std::vector<float> dequantize(const StoredWeight& weight, int64_t num_rows) {
  const WeightDesc& desc = weight.desc();
  if (!is_quantized(desc.layout)) return to_f32(weight.dense_rows());
  weight.check_data();
  const CodeBlock block = {.num_rows = num_rows, .k_end = K};
  std::vector<uint8_t> quads(static_cast<size_t>(K / 4 * kQuadValues));
  weight.read_codes(block, quads.data());
  std::vector<float> groups(static_cast<size_t>(K / desc.group_size * 2 * kPanelRows));
  weight.read_groups(0, num_rows, groups.data());
  std::vector<float> values;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t k = 0; k < K; ++k) {
      const float* group = groups.data() + k / desc.group_size * 2 * kPanelRows + row;
      const auto code = static_cast<float>(*code_at(quads.data(), block, row, k));
      const float scale = group[0], zero = group[kPanelRows];
      values.push_back(desc.zero_kind == ZeroKind::kPoint ? scale * (code - zero)
                                                          : scale * code - zero);
    }
  }
  return values;
}

class GgufTypes : public testing::TestWithParam<size_t> {};

TEST_P(GgufTypes, HaveTheBitsOfThePackageInEveryRow) {
  const auto source =
      open_model_weights(std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata/gguf/types.gguf");
  const std::string prefix = str("model.layers.", GetParam(), ".mlp.");
  const auto expected =
      to_f32(source->view(find_dense_tensor(*source, prefix + "gate_proj.weight", {kNumRows, K})));
  const auto scheme = make_scheme();
  for (int64_t begin = 0; begin < kNumRows; ++begin) {
    const int64_t num_rows = kNumRows - begin;
    const LinearSpec::Part part = part_of(prefix + "up_proj", begin, num_rows);
    const auto weight = scheme->open(*source, part, K);
    const std::vector<float> values = dequantize(*weight, num_rows);
    ASSERT_EQ(values.size(), static_cast<size_t>(num_rows * K));
    EXPECT_EQ(
        0, std::memcmp(values.data(), expected.data() + begin * K, values.size() * sizeof(float)))
        << "rows from " << begin;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufTypes, testing::Range(size_t{0}, std::size(kTypes)),
                         [](const auto& param) { return std::string(kTypes[param.param]); });

/// A row of one type, all of whose bytes are `byte`.
TensorStore row_of(GgmlType type, std::byte byte) {
  const GgmlTypeInfo& info = *find_ggml_type(static_cast<uint32_t>(type));
  const auto row_bytes = static_cast<size_t>(K / info.block_values) * info.block_bytes;
  TensorStore store("f.gguf");
  store.set(str("m.up.weight", info.suffix), DType::kU8,
            {kNumRows, static_cast<int64_t>(row_bytes)},
            std::vector<std::byte>(kNumRows * row_bytes, byte));
  return store;
}

TEST(GgufFormat, KeepsTheBitsOfTheFileWhereALayoutHasThem) {
  const struct {
    GgmlType type;
    PackedLayout layout;
    int64_t group_size;
  } kCases[] = {{GgmlType::kQ4_0, PackedLayout::kU4Quad, 32},
                {GgmlType::kQ4K, PackedLayout::kU4Quad, 32},
                {GgmlType::kQ3K, PackedLayout::kU3Quad, 16},
                {GgmlType::kQ2K, PackedLayout::kU2Quad, 16},
                {GgmlType::kQ8_0, PackedLayout::kU8Quad, 32}};
  for (const auto& c : kCases) {
    const TensorStore store = row_of(c.type, std::byte{0});
    const auto weight = make_scheme()->open(store, part_of("m.up", 0, kNumRows), K);
    EXPECT_EQ(weight->desc().layout, c.layout);
    EXPECT_EQ(weight->desc().group_size, c.group_size);
    EXPECT_EQ(weight->desc().stored_bytes, static_cast<double>(store.tensors()[0].num_bytes));
  }
}

TEST(GgufFormat, RejectsScalesThatAreNotFinite) {
  const TensorStore store = row_of(GgmlType::kQ4K, std::byte{0xFF});  // f16 NaN
  const auto weight = make_scheme()->open(store, part_of("m.up", 0, kNumRows), K);
  EXPECT_THAT([&] { weight->check_data(); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("f.gguf: tensor \"m.up.weight.q4_k\": expected finite scales, got")));
}

TEST(GgufFormat, RejectsSizesThatAreNotTheConfigurations) {
  const TensorStore store = row_of(GgmlType::kQ4K, std::byte{0});
  const auto open = [&](const LinearSpec::Part& part, int64_t in_features) {
    return [&store, part, in_features] { make_scheme()->open(store, part, in_features); };
  };
  LinearSpec::Part part = part_of("m.up", 0, kNumRows);
  EXPECT_THAT(open(part, K + 32), ThrowsMessage<CheckpointError>(
                                      HasSubstr("expected 544 inputs, got blocks of 256 values")));
  EXPECT_THAT(open(part, K / 2),
              ThrowsMessage<CheckpointError>(HasSubstr("expected shape [3, 144], got [3, 288]")));
  part.stored_rows = 4;
  EXPECT_THAT(open(part, K), ThrowsMessage<CheckpointError>(HasSubstr("expected shape [4, 288]")));
}

TEST(GgufFormat, RejectsAWeightThatIsThereTwice) {
  TensorStore store = row_of(GgmlType::kQ4K, std::byte{0});
  const LinearSpec::Part part = part_of("m.up", 0, kNumRows);
  store.set("m.up.weight.q8_0", DType::kU8, {1}, std::vector<std::byte>(1));
  EXPECT_THAT([&] { make_scheme()->open(store, part, K); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("got tensors \"m.up.weight.q4_k\" and \"m.up.weight.q8_0\"")));
  store.remove("m.up.weight.q8_0");
  store.set_f32("m.up.weight", {kNumRows, K}, std::vector<float>(kNumRows * K));
  EXPECT_THAT([&] { make_scheme()->open(store, part, K); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("got tensors \"m.up.weight.q4_k\" and \"m.up.weight\"")));
}

TEST(GgufFormat, NamesAWeightThatIsMissing) {
  EXPECT_THAT([] { make_scheme()->open(TensorStore("f.gguf"), part_of("m.up", 0, kNumRows), K); },
              ThrowsMessage<CheckpointError>(HasSubstr("tensor \"m.up.weight\": expected")));
}

TEST(GgufFormat, RejectsCheckpointsThatDeclareItAndAreNone) {
  EXPECT_THAT([] { detect(TensorStore("folder")); },
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("config.json: field 'quantization_config.quant_method': \"gguf\": "
                            "expected a GGUF file, got folder")));
}

TEST(GgufFormat, MakesNoDummyWeights) {
  EXPECT_THAT([] { make_scheme()->expected_tensors(part_of("m.up", 0, kNumRows), K); },
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("expected a format that dummy weights are made in, got gguf")));
}

}  // namespace
}  // namespace halley
