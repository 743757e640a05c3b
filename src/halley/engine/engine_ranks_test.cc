// The engine with a model that several ranks run: the tokens are those of one rank, in the stages
// of a pipeline too, whatever is cut, preempted, constrained or cancelled.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/engine/engine.h"
#include "halley/engine/testing/engine_fixture.h"
#include "halley/engine/testing/fake_step_runner.h"
#include "halley/models/all/load_model.h"
#include "halley/models/parallel/follow_rank.h"
#include "halley/models/parallel/load_ranked_model.h"
#include "halley/models/parallel/ranked_model.h"
#include "halley/parallel/base/thread_communicator.h"

namespace halley {
namespace {

using std::chrono_literals::operator""s;

constexpr int kNumRequests = 24;

struct RanksCase {
  int num_ranks = 1, num_stages = 1;
};

class EngineRanks : public testing::TestWithParam<RanksCase> {
 protected:
  using Outputs = std::vector<std::vector<int32_t>>;

  std::unique_ptr<CausalLm> load(const RanksCase& ranks) {
    const auto folder = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata/models/llama";
    const HfConfig config = HfConfig::load(folder);
    const auto source = open_checkpoint_weights(folder);
    if (ranks.num_ranks == 1) return load_model(context_, config, *source, {}).model;
    return load_ranked_model(
               context_,
               {.num_ranks = ranks.num_ranks, .num_stages = ranks.num_stages, .timeout = 20s},
               config, *source, {}, {})
        .model;
  }

  Outputs run(const RanksCase& ranks) { return run(load(ranks)); }

  /// Few pages and short steps: prompts are cut, and sequences preempted.
  Outputs run(std::unique_ptr<CausalLm> model,
              const std::shared_ptr<const CompiledConstraint>& constraint = nullptr) {
    const auto vocab_size = static_cast<int32_t>(model->shape().vocab_size);
    const KvPageLayout layout = {.dtype = KvDType::kF32,
                                 .num_kv_heads = model->shape().num_kv_heads,
                                 .head_dim = model->shape().head_dim,
                                 .page_tokens = 4};
    EngineConfig engine_config;
    engine_config.kv_dtype = layout.dtype;
    engine_config.page_tokens = layout.page_tokens;
    engine_config.max_model_len = 64;
    engine_config.max_num_seqs = 6;
    engine_config.max_num_batched_tokens = 16;
    engine_config.kv_bytes =
        28 * model->shape().num_layers * static_cast<int64_t>(layout.page_bytes());
    Engine engine(std::move(model), constraint == nullptr ? nullptr : fake_tokenizer(), {kFakeEos},
                  engine_config);
    Outputs outputs(kNumRequests);
    std::mt19937 random(5);
    for (int i = 0; i < kNumRequests; ++i) {
      GenerateRequest request;
      for (size_t k = 0; k < 1 + random() % 30; ++k) {
        request.prompt_ids.push_back(static_cast<int32_t>(random() % vocab_size));
      }
      request.sampling.max_tokens = static_cast<int64_t>(1 + random() % 24);
      request.sampling.ignore_eos = true;
      request.sampling.temperature = i % 3 == 0 ? 0 : 0.8;
      request.sampling.seed = i;
      if (i % 4 == 1) request.sampling.logit_bias = {{7, 3.0}, {9, -2.0}};
      if (i % 6 == 3) request.constraint = constraint;
      if (i % 5 == 2) request.sampling.frequency_penalty = 0.5;
      std::vector<int32_t>& output = outputs[static_cast<size_t>(i)];
      const SubmitResult result = engine.submit(std::move(request), static_cast<RequestId>(i),
                                                [&output](const TokenEvent& event) {
                                                  if (event.token_id)
                                                    output.push_back(*event.token_id);
                                                });
      EXPECT_EQ(result.status, Submit::kQueued) << result.message;
    }
    engine.wait_until_idle();
    num_preemptions_ = engine.stats().num_preemptions;
    return outputs;
  }

  ThreadPool pool_{1};
  ExecContext context_{.pool = pool_};
  int64_t num_preemptions_ = 0;
};

TEST_P(EngineRanks, GiveTheTokensOfOne) {
  const Outputs whole = run(RanksCase{});
  EXPECT_GT(num_preemptions_, 0);
  EXPECT_EQ(run(GetParam()), whole);
  EXPECT_GT(num_preemptions_, 0);
}

/// Returns what a request gives that generates nothing; empty where it is rejected.
std::vector<float> pooled(Engine& engine, const Pooling& pooling) {
  GenerateRequest request;
  request.prompt_ids = {5, 80, 33, 17, 120, 4, 9};
  request.pooling = pooling;
  std::vector<float> result;
  const SubmitResult submitted = engine.submit(
      std::move(request), 1, [&result](const TokenEvent& event) { result = event.pooled; });
  engine.wait_until_idle();
  EXPECT_EQ(submitted.status == Submit::kQueued, !result.empty()) << submitted.message;
  return result;
}

// Stages but the first pass logits on, and nothing else.
TEST_P(EngineRanks, GiveTheHiddenStatesOfOneUnlessInStages) {
  const EngineConfig config = {.kv_dtype = KvDType::kF32, .max_model_len = 64};
  Engine one(load({}), nullptr, {}, config);
  Engine several(load(GetParam()), nullptr, {}, config);
  EXPECT_GT(one.hidden_size(), 0);
  for (const Pooling& pooling :
       {Pooling{.kind = Pooling::Kind::kLast}, Pooling{.kind = Pooling::Kind::kMean},
        Pooling{.kind = Pooling::Kind::kTokenLogits, .token_ids = {3, 90}}}) {
    const std::vector<float> expected = pooled(one, pooling);
    const std::vector<float> actual = pooled(several, pooling);
    ASSERT_FALSE(expected.empty());
    if (pooling.needs_hidden_states() && GetParam().num_stages > 1) {
      EXPECT_EQ(several.hidden_size(), 0);
      EXPECT_TRUE(actual.empty());
      continue;
    }
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-4) << i;
  }
}

/// Ranks whose models sample by themselves: threads that follow.
class DeviceRanks final : public RankGroup {
 public:
  /// Counts the launches of the other ranks.
  DeviceRanks(int num_ranks, std::atomic<int>& num_launches)
      : ends_(make_thread_communicators(num_ranks, 20s)) {
    for (size_t rank = 1; rank < ends_.size(); ++rank) {
      threads_.emplace_back([this, rank, &num_launches] {
        RankLinks links(*ends_[rank], 1);
        const std::unique_ptr<FakeDeviceLm> model = make_model();
        model->step_runner()->on_launch = [&](const RunnerStep&) { ++num_launches; };
        follow_rank_zero(*model, links);
      });
    }
    links_ = std::make_unique<RankLinks>(*ends_[0], 1);
  }
  ~DeviceRanks() override {
    for (std::thread& thread : threads_) thread.join();
  }
  RankLinks& links() override { return *links_; }

  /// Its steps run when they are waited for, so that a rank that does not wait is behind.
  static std::unique_ptr<FakeDeviceLm> make_model() {
    return std::make_unique<FakeDeviceLm>(fake_vocab_size(), hashed_logits, 64, false);
  }

 private:
  std::vector<std::unique_ptr<Communicator>> ends_;
  std::unique_ptr<RankLinks> links_;
  std::vector<std::thread> threads_;
};

/// The other ranks' models check that their pages have what their slots were told.
TEST_F(EngineRanks, ThatSampleOnTheirDevicesGiveTheTokensOfOne) {
  const auto constraint = fake_constraint("^(?:[a-f]{2,5}stop|[g-z ]+end|[k-z]*)$");
  const Outputs whole = run(DeviceRanks::make_model(), constraint);
  for (const int num_ranks : {2, 3}) {
    int num_launches = 0;
    std::atomic<int> num_others = 0;
    auto own = DeviceRanks::make_model();
    own->step_runner()->on_launch = [&](const RunnerStep&) { ++num_launches; };
    auto model = std::make_unique<RankedModel>(
        std::move(own), context_, std::make_unique<DeviceRanks>(num_ranks, num_others));
    EXPECT_EQ(run(std::move(model), constraint), whole);
    EXPECT_EQ(num_others, (num_ranks - 1) * num_launches);
  }
}

std::string name_of(const testing::TestParamInfo<RanksCase>& param) {
  return str(param.param.num_ranks, "_ranks_in_", param.param.num_stages);
}

INSTANTIATE_TEST_SUITE_P(All, EngineRanks,
                         testing::Values(RanksCase{2, 1}, RanksCase{2, 2}, RanksCase{4, 2}),
                         name_of);

}  // namespace
}  // namespace halley
