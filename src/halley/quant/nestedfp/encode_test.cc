// The tensors written for a layer, and the declaration.
#include "halley/quant/nestedfp/encode.h"

#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"

namespace halley {
namespace {

using testing::IsEmpty;
using testing::ThrowsMessage;

template <typename Element>
NestedFpLayer encode(DType dtype, const Shape& shape, const std::vector<Element>& elements) {
  return encode_nestedfp("m.a",
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
  const uint16_t nan = 0x7E00, infinity = 0xFC00;
  for (const uint16_t beyond :
       {uint16_t{0x3F01}, uint16_t{0xBF01}, uint16_t{0x3F41}, nan, infinity}) {
    const std::vector<uint16_t> bits = {0x3F00, 0x3C00, beyond, beyond};
    const NestedFpLayer layer = encode(DType::kF16, {2, 2}, bits);
    EXPECT_THAT(layer.exception,
                testing::StartsWith("2 of 4 weights are beyond 1.75 or not finite, the first is "));
    EXPECT_THAT(layer.exception, testing::EndsWith(" at [1, 0]"));
    ASSERT_EQ(layer.tensors.size(), size_t{1});
    EXPECT_EQ(layer.tensors[0].info.name, "m.a.weight");
    EXPECT_EQ(layer.tensors[0].info.dtype, DType::kF16);
    EXPECT_EQ(std::memcmp(layer.tensors[0].data.data(), bits.data(), 8), 0);
  }
}

TEST(NestedFpEncode, TakesWiderTypesWhereF16HoldsTheirValues) {
  const std::vector<float> values = {0.5f, -1.75f, 0x1p-24f, -0.0f, 0.0009765625f, 1.0f};
  std::vector<uint16_t> halves, bf16;
  for (const float value : values) halves.push_back(f32_to_f16(value));
  for (const float value : values) bf16.push_back(f32_to_bf16(value));
  const NestedFpLayer expected = encode(DType::kF16, {2, 3}, halves);
  for (const NestedFpLayer& layer :
       {encode(DType::kF32, {2, 3}, values), encode(DType::kBf16, {2, 3}, bf16)}) {
    ASSERT_EQ(layer.tensors.size(), size_t{2});
    EXPECT_EQ(layer.tensors[0].data, expected.tensors[0].data);
    EXPECT_EQ(layer.tensors[1].data, expected.tensors[1].data);
  }
  const std::vector<float> large = {2.0f, std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::infinity()};
  EXPECT_EQ(encode(DType::kF32, {1, 3}, large).exception,
            "3 of 3 weights are beyond 1.75 or not finite, the first is 2 at [0, 0]");
}

TEST(NestedFpEncode, RejectsValuesThatF16DoesNotHold) {
  EXPECT_THAT(
      [] {
        encode(DType::kF32, {2, 2}, std::vector<float>{1, 1, 1, 1e-9f});
      },
      ThrowsMessage<UnsupportedError>(
          "tensor \"m.a.weight\": expected values that f16 holds, got f32 1e-09 at [1, "
          "1]. Convert the checkpoint to f16 first, or use another format."));
  const uint16_t small = f32_to_bf16(0x1p-30f);
  EXPECT_THAT(
      [&] {
        encode(DType::kBf16, {1, 1}, std::vector<uint16_t>{small});
      },
      ThrowsMessage<UnsupportedError>(testing::HasSubstr("got bf16 ")));
  EXPECT_THAT(
      [] {
        encode(DType::kF32, {1, 1}, std::vector<float>{65536.0f});
      },
      ThrowsMessage<UnsupportedError>(testing::HasSubstr("got f32 65536 at [0, 0]")));
}

TEST(NestedFpEncode, NamesTheTypeOfTheFileWhereTheWeightIsACopy) {
  const float small = 0x1p-30f;
  const TensorView copy = {reinterpret_cast<const std::byte*>(&small), DType::kF32, {1, 1}};
  EXPECT_THAT([&] { encode_nestedfp("m.a", copy, DType::kBf16); },
              ThrowsMessage<UnsupportedError>(testing::HasSubstr("got bf16 9.31323e-10 at ")));
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

}  // namespace
}  // namespace halley
