#include "halley/quant/stored/fp4_weight.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float4.h"
#include "halley/core/float8.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kRows = 9, kInputs = 40;

/// NVFP4 as ModelOpt names it; the last group is short.
Fp4WeightSpec spec() {
  return {.format = "a format",
          .values_name = "m.weight",
          .scale_name = "m.weight_scale",
          .group_size = 16,
          .global_name = "m.weight_scale_2",
          .unused_names = {"m.input_scale"}};
}

MemoryTensors tensors() {
  MemoryTensors tensors;
  tensors.add_bytes("m.weight", DType::kU8, {kRows, kInputs / 2});
  tensors.add_bytes("m.weight_scale", DType::kF8E4M3, {kRows, 3});
  tensors.fill("m.weight_scale_2", {}, 0.25f);
  return tensors;
}

std::vector<uint8_t> bytes_of(const TensorSource& source, const std::string& name) {
  const TensorView view = source.view(*source.find(name));
  const auto* data = reinterpret_cast<const uint8_t*>(view.data);
  return {data, data + view.num_bytes()};
}

TEST(Float4, HasTheValuesOfTheStandard) {
  const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(e2m1_to_f32(code), values[code]);
    EXPECT_EQ(e2m1_to_f32(code + 8), -values[code]);
  }
  EXPECT_EQ(e8m0_to_f32(127), 1);
  EXPECT_EQ(e8m0_to_f32(130), 8);
  EXPECT_EQ(e8m0_to_f32(0), std::ldexp(1.0f, -127));
  EXPECT_EQ(e8m0_to_f32(254), std::ldexp(1.0f, 127));
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

TEST(Fp4Weight, IsValueTimesBothScales) {
  MemoryTensors source = tensors();
  source.fill("m.input_scale", {}, 3);
  const auto weight = open_fp4_weight(source, whole_part("m", kRows), kInputs, spec());
  EXPECT_EQ(weight->desc().layout, PackedLayout::kE2m1Quad);
  EXPECT_EQ(weight->desc().group_size, 16);
  EXPECT_EQ(weight->desc().activation, ActivationQuant::kNone);
  EXPECT_THAT(weight->desc().tensor_names,
              ElementsAre("m.weight", "m.weight_scale", "m.weight_scale_2", "m.input_scale"));
  const auto got = dequantized(*weight, kRows, kInputs);
  const auto values = bytes_of(source, "m.weight"), scales = bytes_of(source, "m.weight_scale");
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t k = 0; k < kInputs; ++k) {
      const uint8_t both = values[static_cast<size_t>(n * kInputs / 2 + k / 2)];
      const float scale = e4m3_to_f32(scales[static_cast<size_t>(n * 3 + k / 16)]) * 0.25f;
      EXPECT_EQ(got[static_cast<size_t>(n * kInputs + k)],
                e2m1_to_f32(k % 2 == 0 ? both & 15 : both >> 4) * scale)
          << n << " " << k;
    }
  }
}

TEST(Fp4Weight, TakesReciprocalScalesAndPowersOfTwo) {
  MemoryTensors source;
  source.add("m.weight", DType::kU8, {1, 2}, std::vector<uint8_t>{0x72, 0xF9});
  source.add("m.weight_scale", DType::kU8, {1, 1}, std::vector<uint8_t>{129});
  source.fill("m.weight_scale_2", {1}, 2);
  Fp4WeightSpec mx = spec();
  mx.has_e8m0_scales = true;
  mx.group_size = 32;
  mx.is_global_reciprocal = true;
  const auto weight = open_fp4_weight(source, whole_part("m", 1), 4, mx);
  EXPECT_THAT(dequantized(*weight, 1, 4), ElementsAre(2, 12, -1, -12));
  mx.global_name = "";
  EXPECT_THAT(dequantized(*open_fp4_weight(source, whole_part("m", 1), 4, mx), 1, 4),
              ElementsAre(4, 24, -2, -24));
  source.add("m.weight_scale", DType::kF8E8M0, {1, 1}, std::vector<uint8_t>{126});
  EXPECT_THAT(dequantized(*open_fp4_weight(source, whole_part("m", 1), 4, mx), 1, 4),
              ElementsAre(0.5f, 3, -0.25f, -3));
}

/// A group whose scale e4m3 rounds to zero is zero.
TEST(Fp4Weight, TakesScalesOfZeroInE4m3Alone) {
  MemoryTensors source = tensors();
  std::vector<uint8_t> scales(kRows * 3, 0x38);
  scales[4] = 0;
  source.add("m.weight_scale", DType::kF8E4M3, {kRows, 3}, scales);
  const auto weight = open_fp4_weight(source, whole_part("m", kRows), kInputs, spec());
  EXPECT_EQ(dequantized(*weight, kRows, kInputs).at(kInputs + 17), 0);
}

TEST(Fp4Weight, RejectsWhatIsNoWeight) {
  const auto open = [](const MemoryTensors& source, int64_t K = kInputs) {
    return open_fp4_weight(source, whole_part("m", kRows), K, spec());
  };
  MemoryTensors source = tensors();
  EXPECT_THAT([&] { open(source, 41); },
              ThrowsMessage<CheckpointError>(HasSubstr("expected an even number of inputs")));
  EXPECT_THAT([&] { open(source, 42); }, ThrowsMessage<CheckpointError>(HasSubstr("[9, 21]")));
  source.add_bytes("m.weight_scale", DType::kF8E4M3, {kRows, 2});
  EXPECT_THAT([&] { open(source); }, ThrowsMessage<CheckpointError>(HasSubstr("[9, 3]")));
  source = tensors();
  source.add_bytes("m.weight_scale", DType::kU8, {kRows, 3});
  EXPECT_THAT([&] { open(source); }, ThrowsMessage<CheckpointError>(HasSubstr("f8_e4m3")));
  for (const float global : {0.0f, -1.0f, NAN, INFINITY}) {
    source = tensors();
    source.fill("m.weight_scale_2", {}, global);
    EXPECT_THAT([&] { open(source); }, ThrowsMessage<CheckpointError>(HasSubstr("scale_2")));
  }
  source = tensors();
  source.remove("m.weight_scale_2");
  EXPECT_THAT([&] { open(source); }, ThrowsMessage<CheckpointError>(HasSubstr("scale_2")));
  source = tensors();
  source.add("m.weight_scale", DType::kF8E4M3, {kRows, 3}, std::vector<uint8_t>(kRows * 3, 0x7F));
  EXPECT_THAT([&] { open(source)->check_data(); },
              ThrowsMessage<CheckpointError>(HasSubstr("[0, 0]")));
}

TEST(Fp4Weight, ExpectsWhatItReads) {
  MemoryTensors source;
  for (const TensorInfo& info : expected_fp4_tensors(whole_part("m", kRows), kInputs, spec())) {
    if (info.dtype == DType::kF32) {
      source.fill(info.name, info.shape, 1);
    } else {
      source.add_bytes(info.name, info.dtype, info.shape);
    }
  }
  EXPECT_NO_THROW(open_fp4_weight(source, whole_part("m", kRows), kInputs, spec())->check_data());
}

}  // namespace
}  // namespace halley
