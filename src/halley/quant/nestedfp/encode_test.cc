// The tensors written for a layer, and the declaration.
#include "halley/quant/nestedfp/encode.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/thread_pool.h"

namespace halley {
namespace {

using testing::IsEmpty;
using testing::ThrowsMessage;

template <typename Element>
NestedFpLayer encode(DType dtype, const Shape& shape, const std::vector<Element>& elements) {
  ThreadPool pool(2);
  ExecContext context{pool};
  return encode_nestedfp(context, "m.a",
                         {reinterpret_cast<const std::byte*>(elements.data()), dtype, shape});
}

std::vector<uint8_t> bytes_of(const CheckpointTensor& tensor) {
  std::vector<uint8_t> bytes(tensor.data.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), tensor.data.data(), bytes.size());
  return bytes;
}

TEST(NestedFpEncode, WritesTwoPlanesOfEveryNumber) {
  std::vector<uint16_t> bits;
  for (uint32_t magnitude = 0; magnitude < 0x3F00; ++magnitude) {
    bits.push_back(static_cast<uint16_t>(magnitude));
    bits.push_back(static_cast<uint16_t>(0x8000u | magnitude));
  }
  const Shape shape = {0x7E, 256};
  const NestedFpLayer layer = encode(DType::kF16, shape, bits);
  EXPECT_THAT(layer.exception, IsEmpty());
  ASSERT_EQ(layer.tensors.size(), size_t{2});
  EXPECT_EQ(layer.tensors[0].info.name, "m.a.weight_upper");
  EXPECT_EQ(layer.tensors[0].info.dtype, DType::kF8E4M3);
  EXPECT_EQ(layer.tensors[1].info.name, "m.a.weight_lower");
  EXPECT_EQ(layer.tensors[1].info.dtype, DType::kU8);
  const std::vector<uint8_t> upper = bytes_of(layer.tensors[0]), lower = bytes_of(layer.tensors[1]);
  for (const CheckpointTensor& tensor : layer.tensors) {
    EXPECT_EQ(tensor.info.shape, shape);
    EXPECT_EQ(tensor.info.num_bytes, bits.size());
    ASSERT_EQ(tensor.data.size(), bits.size());
  }
  for (size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(upper[i], f32_to_e4m3(f16_to_f32(bits[i]) * 256.0f)) << bits[i];
    ASSERT_EQ(lower[i], bits[i] & 0xFF) << bits[i];
  }
}

TEST(NestedFpEncode, ALayerWithALargerNumberStaysInF16) {
  for (const uint16_t beyond : {uint16_t{0x3F01}, uint16_t{0xBF01}, uint16_t{0x7BFF}}) {
    const std::vector<uint16_t> bits = {0x3F00, 0x3C00, beyond, beyond};
    const NestedFpLayer layer = encode(DType::kF16, {2, 2}, bits);
    EXPECT_THAT(layer.exception,
                testing::StartsWith("2 of 4 weights are beyond 1.75, the first is "));
    EXPECT_THAT(layer.exception, testing::EndsWith(" at [1, 0]"));
    ASSERT_EQ(layer.tensors.size(), size_t{1});
    EXPECT_EQ(layer.tensors[0].info.name, "m.a.weight");
    EXPECT_EQ(layer.tensors[0].info.dtype, DType::kF16);
    EXPECT_EQ(std::memcmp(layer.tensors[0].data.data(), bits.data(), 8), 0);
  }
}

TEST(NestedFpEncode, RoundsWiderTypesToF16) {
  // 1.75 + 2^-11 is a tie, which goes to the even 1.75; the value above it goes to 1.7509765625.
  const std::vector<float> values = {0.5f, -1.75f, 0x1p-24f, -0.0f, 0x1p-26f, 1.75f + 0x1p-11f};
  std::vector<uint16_t> halves, bf16;
  for (const float value : values) halves.push_back(f32_to_f16(value));
  for (const float value : values) bf16.push_back(f32_to_bf16(value));
  const NestedFpLayer expected = encode(DType::kF16, {2, 3}, halves);
  EXPECT_EQ(expected.rounding.num_changed, 0);
  const NestedFpLayer f32 = encode(DType::kF32, {2, 3}, values);
  const NestedFpLayer from_bf16 = encode(DType::kBf16, {2, 3}, bf16);
  for (const NestedFpLayer* layer : {&f32, &from_bf16}) {
    EXPECT_THAT(layer->exception, IsEmpty());
    ASSERT_EQ(layer->tensors.size(), size_t{2});
    EXPECT_EQ(layer->tensors[0].data, expected.tensors[0].data);
    EXPECT_EQ(layer->tensors[1].data, expected.tensors[1].data);
    EXPECT_EQ(layer->rounding.num_zeroed, 1);
  }
  EXPECT_EQ(f32.rounding.num_changed, 2);
  EXPECT_EQ(from_bf16.rounding.num_changed, 1);
  const std::vector<float> beyond = {1.75f + 0x1.8p-11f};
  EXPECT_EQ(encode(DType::kF32, {1, 1}, beyond).exception,
            "1 of 1 weights are beyond 1.75, the first is 1.75073 at [0, 0]");
}

TEST(NestedFpEncode, WritesNothingOfALayerThatOverflows) {
  const std::vector<float> values = {1, 2, 65519.9f, -65520.0f, 1e30f, 0};
  const NestedFpLayer layer = encode(DType::kF32, {2, 3}, values);
  EXPECT_THAT(layer.tensors, IsEmpty());
  EXPECT_EQ(layer.exception, "2 of 6 weights overflow f16, the first is -65520 at [1, 0]");
}

TEST(NestedFpEncode, RejectsCodes) {
  EXPECT_THAT(
      [] {
        encode(DType::kI8, {1, 1}, std::vector<int8_t>{1});
      },
      ThrowsMessage<UnsupportedError>(
          "tensor \"m.a.weight\": expected type f16, bf16 or f32, got i8. Start from an "
          "unquantized checkpoint."));
}

TEST(NestedFpEncode, TheDeclarationListsTheExceptions) {
  WrittenFormat format;
  EXPECT_EQ(nestedfp_declaration(format).dump(),
            R"({"quant_method":"nestedfp","version":1,"exceptions":[]})");
  format.layers = {{.name = "m.a"}, {.name = "m.b", .is_quantized = false}, {.name = "m.c"}};
  EXPECT_EQ(nestedfp_declaration(format).dump(),
            R"({"quant_method":"nestedfp","version":1,"exceptions":["m.b"]})");
}

TEST(NestedFpEncode, TheDeclarationRecordsTheRounding) {
  RoundedModel rounded = {.dtypes = {"bf16"}, .rounding = {}};
  rounded.rounding.num_values = 8;
  rounded.rounding.num_changed = 3;
  rounded.rounding.num_zeroed = 1;
  rounded.rounding.worst_relative_error = 1;
  rounded.rounding.worst_absolute_error = 0x1p-26;
  const OrderedJson json = nestedfp_declaration({}, rounded);
  EXPECT_EQ(json.at("rounded_to_f16"), OrderedJson({{"num_values", 8},
                                                    {"num_changed", 3},
                                                    {"num_zeroed", 1},
                                                    {"num_overflows", 0},
                                                    {"worst_relative_error", 1.0},
                                                    {"worst_absolute_error", 0x1p-26},
                                                    {"from", {"bf16"}}}));
  const F16Rounding read =
      f16_rounding_of(parse_json(json.at("rounded_to_f16").dump(), "config.json"));
  EXPECT_EQ(to_json(read), to_json(rounded.rounding));
}

}  // namespace
}  // namespace halley
