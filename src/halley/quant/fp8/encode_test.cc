// Written FP8 layers: read back, and the declaration.
#include "halley/quant/fp8/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/quant/base/testing/coded_weights_in_memory.h"
#include "halley/quant/fp8/fp8.h"
#include "halley/quant/stored/testing/memory_tensors.h"

namespace halley {
namespace {

using testing::ThrowsMessage;

std::vector<float> random_weight(int64_t N, int64_t K) {
  std::mt19937 random(7);
  std::vector<float> weight;
  for (int64_t i = 0; i < N * K; ++i) {
    weight.push_back(static_cast<float>(random() % 20001) / 1000.0f - 10.0f);
  }
  return weight;
}

TEST(Fp8Encode, IsReadBack) {
  const int64_t N = 9, K = 33;
  const std::vector<float> weight = random_weight(N, K);
  for (const bool is_static : {false, true}) {
    WrittenFormat format;
    format.is_activation_static = is_static;
    const auto scheme = scheme_of(kQuantFp8, fp8_declaration(format));
    const TensorStore store = store_of(
        encode_fp8("m.a", weight, K, is_static ? std::optional<float>(0.125f) : std::nullopt));
    const auto stored = scheme->open(store, part_of("m.a", N), K);
    EXPECT_EQ(stored->desc().activation,
              is_static ? ActivationQuant::kE4m3Static : ActivationQuant::kE4m3Token);
    EXPECT_EQ(stored->desc().activation_scale, is_static ? 0.125f : 0.0f);
    EXPECT_EQ(stored->desc().tensor_names.size(), is_static ? 3u : 2u);
    const std::vector<float> values = dequantized(*stored, N, K);
    for (size_t i = 0; i < weight.size(); ++i) {
      // Half an ulp of 3 mantissa bits, or of the subnormals: 2^-10 of the scale 10 / 448.
      const float bound = std::max(std::fabs(weight[i]) * 0x1p-4f, 0x1p-10f * 10 / 448);
      EXPECT_NEAR(values[i], weight[i], bound * 1.0001f) << i;
    }
  }
}

TEST(Fp8Encode, RejectsWhatIsNoNumber) {
  EXPECT_THAT(
      [] {
        encode_fp8("m.a", std::vector<float>{1, 2, NAN, 4}, 2, std::nullopt);
      },
      ThrowsMessage<CheckpointError>("layer \"m.a\": expected finite weights, got nan at [1, 0]. "
                                     "The file is damaged: fetch it again."));
}

TEST(Fp8Declaration, ListsLayersLeftOut) {
  WrittenFormat format;
  format.layers = {{.name = "m.a"}, {.name = "m.b", .is_quantized = false}};
  EXPECT_EQ(fp8_declaration(format).dump(),
            R"({"quant_method":"fp8","activation_scheme":"dynamic",)"
            R"("ignored_layers":["lm_head","m.b"]})");
  format.is_activation_static = true;
  const auto scheme = scheme_of(kQuantFp8, fp8_declaration(format));
  EXPECT_EQ(scheme->expected_tensors(part_of("m.a", 8), 8).size(), 3u);
  EXPECT_EQ(scheme->expected_tensors(part_of("m.b", 8), 8).size(), 1u);
}

}  // namespace
}  // namespace halley
