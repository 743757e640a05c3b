// Plans of ranks: slices, tensors that they read, and errors for decoders that cannot be divided.
#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/parallel/base/thread_communicator.h"
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

HfConfig mixture_of(const char* family, int num_layers = 1) {
  return HfConfig::parse(str(R"({"model_type": ")", family,
                             R"(", "hidden_size": 512, "num_hidden_layers": )", num_layers,
                             R"(, "intermediate_size": 256,
              "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64,
              "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 1000,
              "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
              "torch_dtype": "float16"})"),
                         "config.json");
}

/// Ends the program where anybody reads the data of a tensor whose name has one of these texts.
class GuardedSource final : public TensorSource {
 public:
  GuardedSource(const TensorSource& source, std::vector<std::string> texts)
      : source_(source), texts_(std::move(texts)) {
    for (const TensorInfo& info : source.tensors()) {
      if (is_guarded(info)) guard_bytes_ = std::max(guard_bytes_, info.num_bytes);
    }
    HALLEY_CHECK(guard_bytes_ > 0);
    guard_ = mmap(nullptr, guard_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HALLEY_CHECK(guard_ != MAP_FAILED, guard_bytes_);
  }
  ~GuardedSource() override { munmap(guard_, guard_bytes_); }

  std::string description() const override { return source_.description(); }
  const std::vector<TensorInfo>& tensors() const override { return source_.tensors(); }
  const TensorInfo* find(std::string_view name) const override { return source_.find(name); }
  TensorView view(const TensorInfo& info) const override {
    TensorView view = source_.view(info);
    if (is_guarded(info)) view.data = static_cast<std::byte*>(guard_);
    return view;
  }

 private:
  bool is_guarded(const TensorInfo& info) const {
    return std::any_of(texts_.begin(), texts_.end(), [&](const std::string& text) {
      return info.name.find(text) != std::string::npos;
    });
  }

  const TensorSource& source_;
  const std::vector<std::string> texts_;
  size_t guard_bytes_ = 0;
  void* guard_ = nullptr;
};

std::string error_of(const HfConfig& config, const RankShare& share,
                     const std::string& device = "cpu") {
  LoadOptions options;
  options.share = share;
  options.device = device;
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
    EXPECT_EQ(error_of(config_of(512), {.rank = rank, .num_ranks = 4}), "") << rank;
  }
}

TEST(RankPlan, RejectsAnMlpOfFewerBlocksThanRanks) {
  const std::string error = error_of(config_of(256), {.rank = 0, .num_ranks = 4});
  EXPECT_THAT(error, testing::HasSubstr("mlp.down_proj\": expected at most 2 ranks, since its 256 "
                                        "inputs are cut at multiples of 128, got 4."));
}

/// 8 heads of 64 for 8 ranks: the inputs of o.
TEST(RankPlan, RejectsASliceThatCutsABlock) {
  const std::string error = error_of(config_of(1024), {.rank = 1, .num_ranks = 8});
  EXPECT_THAT(error,
              testing::HasSubstr("self_attn.o_proj\": expected slices of its 512 inputs that begin "
                                 "at multiples of 128, since as many activations share a scale, "
                                 "got inputs 64 to 128. Use fewer ranks."));
}

TEST(RankPlan, RejectsMoreStagesThanLayers) {
  const std::string error = error_of(config_of(512), {.stage = 1, .num_stages = 2});
  EXPECT_THAT(error, testing::HasSubstr("pipeline parallelism of config.json: expected at most 1 "
                                        "stages, one for each layer, got 2."));
}

TEST(RankPlan, RejectsRanksThatDivideTheHeadsOfOneNorm) {
  const HfConfig config = mixture_of("olmo2", 2);
  const std::string error = error_of(config, {.rank = 1, .num_ranks = 2});
  EXPECT_THAT(error, testing::HasSubstr("expected norms on each head's query and key, got norms "
                                        "over all heads together, which are in several ranks. Use "
                                        "one rank, or pipeline parallelism."));
  EXPECT_EQ(error_of(config, {.stage = 1, .num_stages = 2}), "");
}

/// 4 experts, 8 heads.
TEST(RankPlan, RejectsMoreRanksThanWholeExperts) {
  EXPECT_EQ(error_of(mixture_of("mixtral"), {.num_ranks = 8}), "");
  EXPECT_EQ(error_of(mixture_of("mixtral"), {.num_ranks = 4, .has_whole_experts = true}), "");
  const std::string error =
      error_of(mixture_of("mixtral"), {.num_ranks = 8, .has_whole_experts = true});
  EXPECT_THAT(error, testing::HasSubstr("expert parallelism of config.json: expected at most 4 "
                                        "ranks, one for each expert, got 8. Use fewer ranks, or "
                                        "leave --enable-expert-parallel out"));
}

TEST(RankPlan, RejectsWholeExpertsOfAModelWithoutExperts) {
  for (const int num_ranks : {1, 2}) {
    const std::string error =
        error_of(mixture_of("llama"), {.num_ranks = num_ranks, .has_whole_experts = true});
    EXPECT_THAT(error, testing::HasSubstr("expert parallelism of config.json: expected layers with "
                                          "experts, got none in the family \"llama\". Leave "
                                          "--enable-expert-parallel out."));
  }
}

/// A rank plans the router and its own experts, by their numbers in the model.
TEST(RankPlan, GivesARankWholeExperts) {
  const HfConfig config = mixture_of("mixtral");
  const auto source = make_dummy_weights(list_dense_tensors(read_decoder_config(config)));
  for (int rank = 0; rank < 2; ++rank) {
    LoadOptions options;
    options.share = {.rank = rank, .num_ranks = 2, .has_whole_experts = true};
    const ModelPlan plan = plan_model(config, *source, options);
    std::vector<std::string> experts;
    for (const ModelPart& part : plan.parts) {
      if (part.name.ends_with("router")) {
        EXPECT_EQ(part.plans[0].out_features, 4);
      }
      if (part.name.find("experts") == std::string::npos) continue;
      experts.push_back(part.name);
      const bool is_down = part.name.ends_with("down");
      EXPECT_EQ(part.plans[0].in_features, is_down ? 256 : 512) << part.name;
    }
    const std::string first = str("layers.0.experts.", 2 * rank, "."),
                      second = str("layers.0.experts.", 2 * rank + 1, ".");
    EXPECT_THAT(experts, testing::ElementsAre(first + "gate_up", first + "down", second + "gate_up",
                                              second + "down"));
  }
}

TEST(RankPlan, ARankReadsNoExpertsOfOthers) {
  const HfConfig config = mixture_of("mixtral");
  const auto weights = make_dummy_weights(list_dense_tensors(read_decoder_config(config)));
  const auto ends = make_thread_communicators(2, std::chrono::seconds(20));
  for (int rank = 0; rank < 2; ++rank) {
    const GuardedSource source(*weights,
                               rank == 0 ? std::vector<std::string>{"experts.2.", "experts.3."}
                                         : std::vector<std::string>{"experts.0.", "experts.1."});
    LoadOptions options;
    options.share = {.rank = rank, .num_ranks = 2, .has_whole_experts = true};
    options.ranks = ends[static_cast<size_t>(rank)].get();
    ThreadPool pool(1);
    ExecContext context{.pool = pool};
    const LoadedDecoder loaded = load_model(context, config, source, {}, options);
    EXPECT_NE(loaded.model, nullptr);
  }
}

}  // namespace
}  // namespace halley
