// Written QoQ layers: read back, against files of an independent writer, and the declaration.
#include "halley/quant/qoq/encode.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/quant/base/dense_tensor.h"
#include "halley/quant/base/testing/coded_weights_in_memory.h"
#include "halley/quant/qoq/qoq.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Two levels of scales whose first-level values fit in 8 bits.
QuantizedWeight random_grouped_weight(int64_t N, int64_t K, uint32_t seed) {
  QuantizedWeight weight = random_quantized_weight({.N = N, .K = K, .group_size = 128}, seed);
  std::mt19937 random(seed);
  for (int64_t n = 0; n < N; ++n) {
    weight.channel_scales.push_back(f16_to_f32(static_cast<uint16_t>(0x1400 + random() % 0x1000)));
  }
  for (size_t i = 0; i < weight.scales.size(); ++i) {
    const int zero = weight.zeros[i];
    const int factor_max = std::min(127 / std::max(1, 15 - zero), 128 / std::max(1, zero));
    weight.factors.push_back(
        static_cast<uint8_t>(1 + random() % static_cast<uint32_t>(std::min(127, factor_max))));
    weight.scales[i] = weight.channel_scales[i / static_cast<size_t>(weight.num_groups())] *
                       static_cast<float>(weight.factors[i]);
  }
  return weight;
}

TEST(QoqEncode, GroupsAreReadBackBitForBit) {
  WrittenFormat format;
  format.layers = {{.name = "model.a"}};
  const auto scheme = scheme_of(kQuantQoq, qoq_declaration(format));
  uint32_t seed = 1;
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{32, 128}, {96, 384}}) {
    const QuantizedWeight weight = random_grouped_weight(N, K, seed++);
    expect_reads_back(*scheme, "model.a", encode_qoq("model.a", weight), weight);
  }
}

TEST(QoqEncode, ScaledZerosAreRoundedToF16) {
  const QuantizedCase of = {.N = 96, .K = 160};
  const QuantizedWeight weight = random_quantized_weight(of, 3);
  const TensorStore store = store_of(encode_qoq("model.a", weight));
  const auto scheme = scheme_of(kQuantQoq, qoq_declaration(written_format_of(of)));
  const auto stored = scheme->open(store, part_of("model.a", of.N), of.K);
  const std::vector<float> values = dequantized_weight(*stored, of.N, of.K);
  for (int64_t n = 0; n < of.N; ++n) {
    const auto row = static_cast<size_t>(n);
    const double scale = weight.scales[row];
    const float scaled_zero = weight.scales[row] * static_cast<float>(weight.zeros[row]);
    const double zero = f16_to_f32(f32_to_f16(scaled_zero));
    // Half an ulp of f16; below 2^-14 that of its subnormals.
    EXPECT_LE(std::fabs(zero - scaled_zero), std::max(scaled_zero * 0x1p-11, 0x1p-25));
    for (int64_t k = 0; k < of.K; ++k) {
      const auto at = static_cast<size_t>(n * of.K + k);
      ASSERT_EQ(values[at], static_cast<float>(scale * weight.codes[at] - zero)) << n << " " << k;
    }
  }
}

/// A golden layer as the format's module reads it, in the form that a quantizer gives it.
QuantizedWeight golden_weight(const TensorSource& source, const StoredWeight& stored,
                              const LinearSpec& spec) {
  const std::string& name = spec.parts[0].name;
  const int64_t N = spec.parts[0].out_features, K = spec.in_features;
  QuantizedWeight weight = quantized_weight_of(stored, N, K);
  const bool is_grouped = source.find(name + ".s2_scales") != nullptr;
  std::vector<float> channel_scales = to_f32(source.view(*source.find(name + ".s1_scales")));
  const auto num_groups = static_cast<size_t>(weight.num_groups());
  for (size_t n = 0; n < static_cast<size_t>(N); ++n) {
    std::vector<float> groups(num_groups * 64);
    stored.read_groups(static_cast<int64_t>(n), 1, groups.data());
    for (size_t g = 0; g < num_groups; ++g) {
      const float scale = groups[g * 64], offset = groups[g * 64 + 32];
      weight.zeros[n * num_groups + g] = static_cast<uint8_t>(std::lround(offset / scale));
      if (!is_grouped) continue;
      weight.factors.push_back(static_cast<uint8_t>(std::lround(scale / channel_scales[n])));
    }
  }
  if (is_grouped) weight.channel_scales = std::move(channel_scales);
  return weight;
}

TEST(QoqEncode, GivesTheBytesOfTheIndependentWriter) {
  for (const char* name : {"qoq_channel", "qoq_g128"}) {
    SCOPED_TRACE(name);
    const GoldenCheckpoint golden(name);
    const auto scheme = kQuantQoq.detect(golden.quant, *golden.source);
    for (const Json& linear : golden.expected.at("linears")) {
      const LinearSpec spec = linear_spec_of(linear);
      const auto stored = scheme->open(*golden.source, spec.parts[0], spec.in_features);
      if (stored->desc().layout == PackedLayout::kF16Panel) continue;
      const QuantizedWeight weight = golden_weight(*golden.source, *stored, spec);
      const auto tensors = encode_qoq(spec.parts[0].name, weight);
      EXPECT_EQ(tensors.size(), weight.factors.empty() ? 3u : 4u);
      expect_same_tensors(*golden.source, tensors);
    }
  }
}

TEST(QoqEncode, RejectsWhatTilesCannotHold) {
  const auto encode = [](const QuantizedWeight& weight) {
    return [weight] { encode_qoq("model.a", weight); };
  };
  EXPECT_THAT(encode(random_quantized_weight({.N = 48, .K = 64}, 1)),
              ThrowsMessage<UnsupportedError>(
                  "layer \"model.a\": expected outputs (N) in multiples of 32, got 48. Leave the "
                  "layer out by an override, or choose another format or other settings."));
  EXPECT_THAT(encode(random_quantized_weight({.N = 32, .K = 48}, 1)),
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("expected inputs (K) in multiples of 32, got 48.")));
  EXPECT_THAT(encode(random_grouped_weight(32, 160, 1)),
              ThrowsMessage<UnsupportedError>(
                  HasSubstr("expected inputs (K) in multiples of 128, got 160.")));
  EXPECT_THAT(encode(random_quantized_weight({.N = 32, .K = 256, .group_size = 128}, 1)),
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "expected one group of all inputs, or groups of 128 with two levels of scales, "
                  "got groups of 128 with one level.")));
  EXPECT_THAT(encode(random_quantized_weight({.N = 32, .K = 32, .bits = 3}, 1)),
              ThrowsMessage<UnsupportedError>(HasSubstr("expected bits among [4], got 3.")));
  QuantizedWeight weight = random_quantized_weight({.N = 32, .K = 32}, 1);
  weight.scales[7] = 4368;
  weight.zeros[7] = 15;
  EXPECT_THAT(encode(weight), ThrowsMessage<UnsupportedError>(HasSubstr(
                                  "expected scale times zero of at most 65504, got 65520 of "
                                  "output 7.")));
  weight = random_quantized_weight({.N = 32, .K = 32, .has_perm = true}, 1);
  EXPECT_THAT(encode(weight),
              ThrowsMessage<UnsupportedError>(HasSubstr("expected groups of consecutive inputs")));
}

TEST(QoqDeclaration, HasTheCacheAndTheLayersLeftOut) {
  WrittenFormat format;
  format.kv_bits = 4;
  format.layers = {{.name = "model.a"}, {.name = "model.b", .is_quantized = false}};
  EXPECT_EQ(qoq_declaration(format).dump(),
            R"({"quant_method":"qoq","wbits":4,"group_size":128,"kv_bits":4,)"
            R"("modules_to_not_convert":["lm_head","model.b"]})");
  const auto scheme = scheme_of(kQuantQoq, qoq_declaration(format));
  EXPECT_EQ(scheme->declared_kv(), DeclaredKv::kInt4);
  EXPECT_EQ(scheme->expected_tensors(part_of("model.b", 32), 128)[0].name, "model.b.weight");
  EXPECT_EQ(scheme->expected_tensors(part_of("model.a", 32), 128)[0].name, "model.a.qweight");
  format.group_size = 0;
  format.layers = {};
  format.kv_bits = 16;
  EXPECT_EQ(scheme_of(kQuantQoq, qoq_declaration(format))->declared_kv(), DeclaredKv::kNothing);
}

TEST(QoqDeclaration, RejectsWhatItCannotSay) {
  WrittenFormat format;
  format.layers = {{.name = "model.a", .bits = 8}};
  EXPECT_THAT([&] { qoq_declaration(format); },
              ThrowsMessage<UnsupportedError>(HasSubstr(
                  "layer \"model.a\": expected the settings of the whole model in qoq (4 bits, "
                  "group 128, asymmetric), got 8 bits, group 128, asymmetric.")));
  format.layers = {};
  format.group_size = 64;
  EXPECT_THAT([&] { qoq_declaration(format); },
              ThrowsMessage<UnsupportedError>("qoq: expected per-channel scales or groups of 128, "
                                              "got groups of 64. Choose one of them."));
}

}  // namespace
}  // namespace halley
