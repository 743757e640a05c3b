#include "halley/quant/fmpq/encode.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/quant/fmpq/fmpq.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::StartsWith;
using testing::ThrowsMessage;

QuantizedWeight empty_weight(int64_t N, int64_t K) {
  QuantizedWeight weight;
  weight.N = N;
  weight.K = K;
  weight.group_size = 128;
  weight.is_symmetric = true;
  return weight;
}

QuantizedWeight random_weight(int64_t N, int64_t K, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> scale(0.001f, 0.1f);
  QuantizedWeight weight = empty_weight(N, K);
  for (int64_t i = 0; i < N * K; ++i) weight.codes.push_back(static_cast<uint8_t>(random() % 16));
  for (int64_t i = 0; i < N * weight.num_groups(); ++i) {
    weight.scales.push_back(f16_to_f32(f32_to_f16(scale(random))));
    weight.zeros.push_back(8);
  }
  return weight;
}

std::vector<int32_t> random_perm(int64_t K, uint32_t seed) {
  std::vector<int32_t> perm;
  for (int64_t k = 0; k < K; ++k) perm.push_back(static_cast<int32_t>(k));
  std::shuffle(perm.begin(), perm.end(), std::mt19937(seed));
  return perm;
}

MemoryTensors tensors_of(const std::vector<CheckpointTensor>& written) {
  MemoryTensors tensors;
  for (const CheckpointTensor& tensor : written) {
    EXPECT_EQ(tensor.info.num_bytes, tensor.data.size()) << tensor.info.name;
    tensors.add(tensor.info.name, tensor.info.dtype, tensor.info.shape, tensor.data);
  }
  return tensors;
}

std::unique_ptr<QuantScheme> scheme_of(const OrderedJson& declaration) {
  const HfConfig config =
      HfConfig::parse(OrderedJson{{"quantization_config", declaration}}.dump(), "config.json");
  const MemoryTensors tensors;
  return kQuantFmpq.detect(read_quant_config(config, {}), tensors);
}

WrittenFormat written_format() {
  return {.bits = 4, .group_size = 128, .is_symmetric = true, .kv_bits = 4, .layers = {}};
}

TEST(FmpqEncode, WritesTheDocumentedBytes) {
  QuantizedWeight weight = empty_weight(2, 3);
  weight.codes = {1, 2, 3, 15, 0, 9};
  weight.scales = {0.5f, 2.0f};
  weight.zeros = {8, 8};
  const auto tensors =
      encode_fmpq("m.a", weight, {.input_perm = {2, 0, 1}, .num_s8_blocks = 1, .s4_clip = 0.75f});
  const auto expect_bytes = [&](size_t i, const char* name, DType dtype, const Shape& shape,
                                const std::vector<uint8_t>& bytes) {
    EXPECT_EQ(tensors[i].info.name, name);
    EXPECT_EQ(tensors[i].info.dtype, dtype) << name;
    EXPECT_EQ(tensors[i].info.shape, shape) << name;
    ASSERT_EQ(tensors[i].data.size(), bytes.size()) << name;
    EXPECT_EQ(std::memcmp(tensors[i].data.data(), bytes.data(), bytes.size()), 0) << name;
  };
  ASSERT_EQ(tensors.size(), 5u);
  expect_bytes(0, "m.a.qweight", DType::kU8, {2, 2}, {0x21, 0x03, 0x0F, 0x09});
  expect_bytes(1, "m.a.scales", DType::kF16, {2, 1}, {0x00, 0x38, 0x00, 0x40});
  expect_bytes(2, "m.a.block_bits", DType::kU8, {1}, {8});
  expect_bytes(3, "m.a.activation_clip", DType::kF32, {1}, {0x00, 0x00, 0x40, 0x3F});
  expect_bytes(4, "m.a.input_order", DType::kI32, {3}, {2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});
}

TEST(FmpqEncode, WhatIsWrittenReadsBack) {
  uint32_t seed = 1;
  for (const int64_t K : {1, 127, 128, 200, 301, 1408}) {
    for (const bool has_perm : {false, true}) {
      const int64_t N = 33;
      const QuantizedWeight weight = random_weight(N, K, seed++);
      FmpqInput input;
      if (has_perm) input.input_perm = random_perm(K, seed);
      input.num_s8_blocks = seed % (weight.num_groups() + 1);
      input.s4_clip = 0.8f;
      const MemoryTensors tensors = tensors_of(encode_fmpq("a", weight, input));
      const auto scheme = scheme_of(fmpq_declaration(written_format()));
      const auto stored = scheme->open(tensors, whole_part("a", N), K);
      EXPECT_EQ(stored->desc().num_s8_inputs, std::min(K, 128 * input.num_s8_blocks));
      EXPECT_EQ(stored->desc().s4_clip, 0.8f);
      EXPECT_EQ(stored->input_perm(), input.input_perm);
      std::vector<float> expected(static_cast<size_t>(N * K)), row(static_cast<size_t>(K));
      for (int64_t n = 0; n < N; ++n) {
        dequantize_row(weight, n, row);
        for (int64_t k = 0; k < K; ++k) {
          const int64_t channel = has_perm ? input.input_perm[static_cast<size_t>(k)] : k;
          expected[static_cast<size_t>(n * K + channel)] = row[static_cast<size_t>(k)];
        }
      }
      EXPECT_EQ(dequantized(*stored, N, K), expected) << K << " " << has_perm;
    }
  }
}

TEST(FmpqEncode, TakesOneGroupOfFewInputs) {
  QuantizedWeight weight = random_weight(3, 50, 7);
  weight.group_size = 50;
  EXPECT_EQ(encode_fmpq("a", weight, {}).size(), 4u);
}

TEST(FmpqEncode, RejectsWhatTheFormatDoesNotHave) {
  const auto expect_rejection = [](const QuantizedWeight& weight, const char* text) {
    EXPECT_THAT([&] { encode_fmpq("m.a", weight, {}); },
                ThrowsMessage<UnsupportedError>(StartsWith(text)));
  };
  QuantizedWeight weight = random_weight(4, 256, 8);
  weight.bits = 8;
  expect_rejection(weight,
                   "layer \"m.a\": expected 4 bits, symmetric, in groups of 128, got 8 bits, "
                   "symmetric, in groups of 128. Quantize so, or choose another format.");
  weight.bits = 4;
  weight.group_size = 64;
  expect_rejection(weight,
                   "layer \"m.a\": expected 4 bits, symmetric, in groups of 128, got 4 bits, "
                   "symmetric, in groups of 64.");
  weight.group_size = 128;
  weight.is_symmetric = false;
  expect_rejection(weight,
                   "layer \"m.a\": expected 4 bits, symmetric, in groups of 128, got 4 bits, "
                   "asymmetric, in groups of 128.");
  weight.is_symmetric = true;
  weight.group_of_input.assign(256, 0);
  expect_rejection(weight, "layer \"m.a\": expected groups of consecutive inputs, got a g_idx. ");
}

TEST(FmpqDeclaration, SaysWhatIsDense) {
  WrittenFormat format = written_format();
  format.layers = {{.name = "m.a", .is_symmetric = true},
                   {.name = "lm_head", .is_quantized = false, .bits = 16},
                   {.name = "m.b", .is_symmetric = true}};
  EXPECT_EQ(fmpq_declaration(format).dump(),
            R"({"quant_method":"fmpq","version":1,"bits":4,"group_size":128,"kv_bits":4,)"
            R"("modules_to_not_convert":["lm_head"]})");
  EXPECT_EQ(fmpq_declaration(format, 0.5)["s4_share"], 0.5);
  EXPECT_EQ(scheme_of(fmpq_declaration(format))->declared_kv(), DeclaredKv::kInt4);
  EXPECT_EQ(
      scheme_of(fmpq_declaration(format))->expected_tensors(whole_part("lm_head", 8), 8)[0].name,
      "lm_head.weight");
}

TEST(FmpqDeclaration, RejectsOtherSettings) {
  WrittenFormat format = written_format();
  format.layers = {{.name = "m.b", .group_size = 64, .is_symmetric = true}};
  EXPECT_THAT([&] { fmpq_declaration(format); },
              ThrowsMessage<UnsupportedError>(StartsWith(
                  "layer \"m.b\": expected 4 bits, symmetric, in groups of 128, got 4 bits, "
                  "symmetric, in groups of 64.")));
  format.bits = 3;
  EXPECT_THAT([&] { fmpq_declaration(format); },
              ThrowsMessage<UnsupportedError>(StartsWith("fmpq: expected 4 bits, symmetric, in "
                                                         "groups of 128, got 3 bits")));
}

}  // namespace
}  // namespace halley
