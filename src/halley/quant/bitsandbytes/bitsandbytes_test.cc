// Files of bitsandbytes: what the tool itself dequantizes, and every rejection.
#include "halley/quant/bitsandbytes/bitsandbytes.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/testing/golden_checkpoint.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(BitsAndBytes, HasTheWeightsThatTheToolDequantizes) {
  for (const char* name :
       {"bnb_nf4", "bnb_nf4_nested", "bnb_nf4_storage", "bnb_fp4_nested", "bnb_int8"}) {
    expect_golden_weights(kQuantBitsAndBytes, name);
  }
}

std::unique_ptr<QuantScheme> scheme() {
  const QuantConfig config = quant_config_of(
      HfConfig::parse(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "config.json"));
  return kQuantBitsAndBytes.detect(config, MemoryTensors());
}

constexpr const char* kState = "a.weight.quant_state.bitsandbytes__nf4";

MemoryTensors with_state(MemoryTensors tensors, const std::string& state) {
  tensors.add(kState, DType::kU8, {static_cast<int64_t>(state.size())},
              std::vector<char>(state.begin(), state.end()));
  return tensors;
}

/// Codes 0 to 15 of [2, 8] in blocks of 4 with scales 1, 2, 3 and 4; the table is 0, 1, ..., 15.
MemoryTensors one_layer() {
  MemoryTensors tensors;
  tensors.add("a.weight", DType::kU8, {8, 1},
              std::vector<uint8_t>{0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF});
  std::vector<float> table;
  for (int i = 0; i < 16; ++i) table.push_back(static_cast<float>(i));
  tensors.add("a.weight.quant_map", DType::kF32, {16}, table);
  tensors.add("a.weight.absmax", DType::kF32, {4}, std::vector<float>{1, 2, 3, 4});
  return with_state(
      std::move(tensors),
      R"({"quant_type": "nf4", "blocksize": 4, "dtype": "bfloat16", "shape": [2, 8]})");
}

TEST(BitsAndBytes, TheFirstOfTwoCodesIsInTheUpperHalf) {
  const MemoryTensors tensors = one_layer();
  const auto weight = scheme()->open(tensors, whole_part("a", 2), 8);
  EXPECT_EQ(weight->desc().layout, PackedLayout::kBf16PairPanel);
  EXPECT_EQ(to_f32(weight->dense_rows()),
            (std::vector<float>{0, 1, 2, 3, 8, 10, 12, 14, 24, 27, 30, 33, 48, 52, 56, 60}));
  LinearSpec::Part part = whole_part("a", 2);
  part.row_begin = 1;
  part.out_features = 1;
  EXPECT_EQ(to_f32(scheme()->open(tensors, part, 8)->dense_rows()),
            (std::vector<float>{24, 27, 30, 33, 48, 52, 56, 60}));
}

TEST(BitsAndBytes, LayersWithoutItsTensorsStayAsTheyAre) {
  MemoryTensors tensors;
  tensors.fill("a.weight", {2, 8}, 1.5f);
  EXPECT_EQ(scheme()->open(tensors, whole_part("a", 2), 8)->desc().layout, PackedLayout::kF32Panel);
}

void expect_rejected(const MemoryTensors& tensors, const std::string& part_of_message) {
  EXPECT_THAT([&] { scheme()->open(tensors, whole_part("a", 2), 8)->dense_rows(); },
              ThrowsMessage<CheckpointError>(HasSubstr(part_of_message)));
}

TEST(BitsAndBytes, RejectsTensorsThatDoNotFit) {
  MemoryTensors tensors = one_layer();
  tensors.remove("a.weight.absmax");
  expect_rejected(tensors, "\"a.weight.absmax\": expected");
  tensors = one_layer();
  tensors.add("a.weight", DType::kU8, {7, 1}, std::vector<uint8_t>(7));
  expect_rejected(tensors, "expected 8 bytes of 4-bit codes, got 7");
  tensors = one_layer();
  tensors.add("a.weight.absmax", DType::kF32, {4}, std::vector<float>{1, NAN, 3, 4});
  expect_rejected(tensors, "expected finite weights, got nan in block 1");
  tensors = one_layer();
  tensors.remove(kState);
  expect_rejected(tensors, kState);
}

TEST(BitsAndBytes, RejectsStatesThatSayOtherwise) {
  const auto state = [](const std::string& fields) { return with_state(one_layer(), fields); };
  expect_rejected(state("{"), kState);
  expect_rejected(state("[]"), "expected a JSON object");
  expect_rejected(state(R"({"blocksize": 4, "dtype": "bfloat16", "shape": [8, 2]})"),
                  "field 'shape': expected [2, 8]");
  expect_rejected(state(R"({"blocksize": 0, "dtype": "bfloat16", "shape": [2, 8]})"),
                  "field 'blocksize': expected an integer from 1 to");
  expect_rejected(state(R"({"blocksize": 4, "dtype": "int8", "shape": [2, 8]})"),
                  "field 'dtype': expected float16, bfloat16 or float32");
  expect_rejected(state(R"({"blocksize": 4, "dtype": "float16", "shape": [2, 8],
                            "nested_blocksize": 256, "nested_offset": 0.5})"),
                  "a.weight.absmax");
}

TEST(BitsAndBytes, RejectsCodesInAnotherOrder) {
  MemoryTensors tensors;
  tensors.add_bytes("a.weight", DType::kI8, {2, 8});
  tensors.fill("a.SCB", {2}, 1.0f);
  tensors.add("a.weight_format", DType::kU8, {}, std::vector<uint8_t>{1});
  EXPECT_THAT([&] { scheme()->open(tensors, whole_part("a", 2), 8); },
              ThrowsMessage<UnsupportedError>(HasSubstr("\"a.weight_format\": expected 0")));
  tensors.add("a.weight_format", DType::kU8, {}, std::vector<uint8_t>{0});
  tensors.add("a.SCB", DType::kF32, {2}, std::vector<float>{1, INFINITY});
  EXPECT_THAT([&] { scheme()->open(tensors, whole_part("a", 2), 8)->check_data(); },
              ThrowsMessage<CheckpointError>(HasSubstr("expected finite scales, got inf")));
}

}  // namespace
}  // namespace halley
