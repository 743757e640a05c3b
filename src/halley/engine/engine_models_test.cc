// The engine with real (tiny) models: a cached prefix changes no bit of any log probability and no
// token; log probabilities of a prompt agree with transformers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/engine/generate.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/two_planes.h"

namespace halley {
namespace {

constexpr int kNumLogprobs = 5;

std::filesystem::path model_folder(const std::string& family) {
  return std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata/models" / family;
}

std::unique_ptr<CausalLm> load_tiny(ExecContext& context, const std::string& family) {
  const auto source = open_checkpoint_weights(model_folder(family));
  return load_model(context, HfConfig::load(model_folder(family)), *source, {}).model;
}

struct CachingCase {
  std::string family;
  KvDType kv_dtype = KvDType::kF16;
};

class PrefixCachingOf : public testing::TestWithParam<CachingCase> {
 protected:
  PrefixCachingOf() : pool_(2), context_{pool_} {}

  std::unique_ptr<CausalLm> load() { return load_tiny(context_, GetParam().family); }

  EngineConfig config(bool has_prefix_caching) const {
    EngineConfig config;
    config.kv_dtype = GetParam().kv_dtype;
    config.page_tokens = 8;
    config.max_model_len = 120;
    config.max_num_seqs = 3;
    config.max_num_batched_tokens = 20;  // so that prompts are cut
    config.has_prefix_caching = has_prefix_caching;
    return config;
  }

  ThreadPool pool_;
  ExecContext context_;
};

// Three conversations with a common prefix, a later turn of each, and one of them twice.
std::vector<GenerateRequest> conversations() {
  std::mt19937 random(3);
  const auto append = [&](std::vector<int32_t>& ids, int count) {
    for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random() % 384));
  };
  std::vector<int32_t> beginning;
  append(beginning, 45);
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 3; ++i) {
    GenerateRequest request;
    request.prompt_ids = beginning;
    append(request.prompt_ids, 3 + 5 * i);
    request.sampling.max_tokens = 12;
    request.sampling.temperature = i == 0 ? 0 : 0.8;
    request.sampling.seed = 10 + i;
    request.sampling.ignore_eos = true;
    request.sampling.num_logprobs = kNumLogprobs;
    requests.push_back(request);
    append(request.prompt_ids, 10);
    requests.push_back(request);
  }
  requests.push_back(requests[0]);
  return requests;
}

void expect_same_bits(const GenerateResult& actual, const GenerateResult& expected) {
  EXPECT_EQ(actual.token_ids, expected.token_ids);
  ASSERT_EQ(actual.top_logprobs.size(), expected.top_logprobs.size());
  for (size_t i = 0; i < actual.top_logprobs.size(); ++i) {
    EXPECT_EQ(actual.logprobs[i].logprob, expected.logprobs[i].logprob) << "token " << i;
    ASSERT_EQ(actual.top_logprobs[i].size(), size_t{kNumLogprobs});
    for (size_t j = 0; j < actual.top_logprobs[i].size(); ++j) {
      EXPECT_EQ(actual.top_logprobs[i][j].token_id, expected.top_logprobs[i][j].token_id);
      EXPECT_EQ(actual.top_logprobs[i][j].logprob, expected.top_logprobs[i][j].logprob);
    }
  }
}

TEST_P(PrefixCachingOf, ChangesNoBit) {
  const std::vector<GenerateRequest> requests = conversations();
  Engine without(load(), nullptr, {}, config(false));
  Engine with(load(), nullptr, {}, config(true));
  RequestId id = 1;
  std::vector<GenerateResult> expected;
  for (const GenerateRequest& request : requests) {
    expected.push_back(generate_all(without, {request}, {}, id++)[0]);
    ASSERT_EQ(expected.back().finish_reason, FinishReason::kLength);
  }
  const auto check_round = [&](const std::vector<GenerateResult>& actual) {
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(str("request ", i));
      expect_same_bits(actual[i], expected[i]);
    }
  };
  check_round(generate_all(with, requests, {}, 100));  // several at once
  const int64_t num_hits = with.stats().num_prefix_hits;
  EXPECT_GT(num_hits, 0);
  check_round(generate_all(with, requests, {}, 200));  // all of them again
  // All full pages of each prompt, without its last token.
  int64_t num_cached = 0;
  for (const GenerateRequest& request : requests) {
    num_cached += (static_cast<int64_t>(request.prompt_ids.size()) - 1) / 8 * 8;
  }
  EXPECT_EQ(with.stats().num_prefix_hits - num_hits, num_cached);
  EXPECT_EQ(without.stats().num_prefix_hits, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Families, PrefixCachingOf,
    testing::Values(CachingCase{"llama"}, CachingCase{"mistral_swa"},
                    CachingCase{"gemma2", KvDType::kInt8}, CachingCase{"qwen3_moe", KvDType::kF32},
                    CachingCase{"llama", KvDType::kInt4}, CachingCase{"opt", KvDType::kFp8E4M3}),
    [](const auto& tested) { return str(tested.param.family, "_", tested.param.kv_dtype); });

/// Forwards to `model`; a clock advances by what a step takes in its precision.
class TimedModel final : public CausalLm {
 public:
  TimedModel(std::unique_ptr<CausalLm> model, std::atomic<int64_t>& milliseconds)
      : model_(std::move(model)), milliseconds_(milliseconds) {}

  const ModelShape& shape() const override { return model_->shape(); }
  void forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) override {
    milliseconds_ += batch.precision == Precision::kLow ? 5 : 10;
    model_->forward(batch, cache, logits);
  }
  std::vector<PrecisionLevel> precision_levels(KvDType kv_dtype) const override {
    return model_->precision_levels(kv_dtype);
  }

 private:
  std::unique_ptr<CausalLm> model_;
  std::atomic<int64_t>& milliseconds_;
};

// Under a load that low precision alone holds, those that demand full precision have the bits of a
// model that knows no other; so have all of an engine that nobody asks for low precision.
TEST(TwoPrecisions, ChangeNoBitOfWhoDemandsFull) {
  const auto dir = model_folder("llama");
  const HfConfig config = HfConfig::load(dir);
  const EditableSource source(*open_checkpoint_weights(dir));
  const TwoPlaneCheckpoint nested(read_decoder_config(config, source, 0), source);
  ThreadPool pool(2);
  ExecContext context{pool};
  std::atomic<int64_t> milliseconds = 1000;
  EngineConfig engine_config;
  engine_config.page_tokens = 8;
  engine_config.max_num_seqs = 3;
  engine_config.max_num_batched_tokens = 20;
  const auto load = [&](const EngineConfig& full_config) {
    auto model = load_model(context, config, nested.source, {}, nested.options()).model;
    return std::make_unique<Engine>(std::make_unique<TimedModel>(std::move(model), milliseconds),
                                    nullptr, std::vector<int32_t>{}, full_config, [&] {
                                      return TimePoint(std::chrono::milliseconds(milliseconds));
                                    });
  };
  Engine dense(load_tiny(context, "llama"), nullptr, {}, engine_config);
  const auto full = load(engine_config);
  engine_config.precision = PrecisionMode::kAuto;
  engine_config.slo.tpot = 0.008;
  const auto mixed = load(engine_config);

  std::vector<GenerateRequest> requests = conversations();
  const std::vector<GenerateResult> expected = generate_all(dense, requests);
  const std::vector<GenerateResult> in_full = generate_all(*full, requests);
  for (size_t i = 1; i < requests.size(); i += 2) requests[i].precision = PrecisionMode::kFull;
  std::vector<int64_t> num_low(requests.size());
  const std::vector<GenerateResult> actual =
      generate_all(*mixed, requests, [&](size_t index, const TokenEvent& event) {
        if (event.is_low) ++num_low[index];
      });
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(str("request ", i));
    expect_same_bits(in_full[i], expected[i]);
    if (!requests[i].precision) continue;
    expect_same_bits(actual[i], expected[i]);
    EXPECT_EQ(num_low[i], 0);
  }
  const PrecisionStats stats = mixed->stats().precision;
  EXPECT_GT(stats.levels.at(1).num_tokens, 0);
  EXPECT_EQ(stats.levels.at(1).num_tokens,
            std::accumulate(num_low.begin(), num_low.end(), int64_t{0}));
  EXPECT_EQ(full->stats().precision.levels.at(1).num_steps, 0);
}

TEST(PromptLogprobs, AgreeWithTransformers) {
  // Ten times of what was measured: sums in f32, in another order.
  constexpr double kLogprobMax = 1e-5;
  ThreadPool pool(2);
  ExecContext context{pool};
  for (const char* family : {"llama", "gemma2", "qwen3_moe"}) {
    SCOPED_TRACE(family);
    std::ifstream file(model_folder(family) / "golden.json");
    const Json golden = Json::parse(file);
    GenerateRequest request;
    request.prompt_ids = golden.at("input_ids").get<std::vector<int32_t>>();
    request.sampling.max_tokens = 1;
    request.sampling.num_prompt_logprobs = 1;
    EngineConfig config;
    config.kv_dtype = KvDType::kF32;
    config.max_num_batched_tokens = 64;
    Engine engine(load_tiny(context, family), nullptr, {}, config);
    const std::vector<PromptLogprob> logprobs = generate_all(engine, {request})[0].prompt_logprobs;
    ASSERT_EQ(logprobs.size(), request.prompt_ids.size());
    EXPECT_FALSE(logprobs[0].logprob);
    const auto argmax = golden.at("argmax").get<std::vector<int32_t>>();
    const auto logits = golden.at("logits_row_0").get<std::vector<double>>();
    const double logsumexp = golden.at("logsumexp").at(0).get<double>();
    const double expected = logits.at(static_cast<size_t>(request.prompt_ids.at(1))) - logsumexp;
    EXPECT_NEAR(logprobs[1].logprob.value(), expected, kLogprobMax);
    int num_wrong = 0;
    for (size_t i = 1; i < logprobs.size(); ++i) {
      num_wrong += logprobs[i].top.at(0).token_id != argmax.at(i - 1);
    }
    EXPECT_EQ(num_wrong, 0);
  }
}

}  // namespace
}  // namespace halley
