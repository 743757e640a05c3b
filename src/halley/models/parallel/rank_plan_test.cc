// The errors of plan_model() for decoders that cannot be divided among ranks.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/models/all/load_model.h"
#include "halley/quant/all/builtin_quant_configs.h"

namespace halley {
namespace {

/// FMPQ rounds activations in blocks of 128 inputs.
HfConfig config_of(int64_t intermediate_size) {
  return HfConfig::parse(
      str(R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 1,
              "intermediate_size": )",
          intermediate_size,
          R"(, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64,
              "vocab_size": 1000, "hidden_act": "silu", "max_position_embeddings": 256,
              "rms_norm_eps": 1e-5, "torch_dtype": "float16", "quantization_config": )",
          builtin_quant_config("w4ax"), "}"),
      "config.json");
}

std::string error_of(int64_t intermediate_size, const RankShare& share,
                     const std::string& device = "cpu") {
  LoadOptions options;
  options.share = share;
  options.device = device;
  const HfConfig config = config_of(intermediate_size);
  const auto source = make_dummy_weights(
      list_quantized_tensors(read_decoder_config(config), read_quant_config(config, {})));
  try {
    static_cast<void>(plan_model(config, *source, options));
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "";
}

TEST(RankPlan, DividesWhatHasABlockForEachRank) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(error_of(512, {.rank = rank, .num_ranks = 4}), "") << rank;
  }
}

TEST(RankPlan, RejectsAnMlpOfFewerBlocksThanRanks) {
  const std::string error = error_of(256, {.rank = 0, .num_ranks = 4});
  EXPECT_THAT(error, testing::HasSubstr("mlp.down_proj\": expected at most 2 ranks, since its 256 "
                                        "inputs are cut at multiples of 128, got 4."));
}

/// 8 heads of 64 for 8 ranks: the inputs of o.
TEST(RankPlan, RejectsASliceThatCutsABlock) {
  const std::string error = error_of(1024, {.rank = 1, .num_ranks = 8});
  EXPECT_THAT(error,
              testing::HasSubstr("self_attn.o_proj\": expected slices of its 512 inputs that begin "
                                 "at multiples of 128, since as many activations share a scale, "
                                 "got inputs 64 to 128. Use fewer ranks."));
}

TEST(RankPlan, RejectsMoreStagesThanLayers) {
  const std::string error = error_of(512, {.stage = 1, .num_stages = 2});
  EXPECT_THAT(error, testing::HasSubstr("pipeline parallelism of config.json: expected at most 1 "
                                        "stages, one for each layer, got 2."));
}

TEST(RankPlan, RejectsStagesOnGpus) {
  const std::string error = error_of(1024, {.stage = 1, .num_stages = 2}, "cuda");
  EXPECT_THAT(error, testing::HasSubstr("pipeline parallelism: expected the CPU, got 2 stages on "
                                        "GPUs. Use --device cpu, or --tensor-parallel-size alone"));
}

}  // namespace
}  // namespace halley
