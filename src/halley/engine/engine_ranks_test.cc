// The engine with a model that several ranks run: the tokens are those of one rank, in the stages
// of a pipeline too, whatever is cut, preempted, constrained or cancelled.
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/engine/engine.h"
#include "halley/models/all/load_model.h"
#include "halley/models/parallel/load_ranked_model.h"

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

  /// Few pages and short steps: prompts are cut, and sequences preempted.
  Outputs run(const RanksCase& ranks) {
    std::unique_ptr<CausalLm> model = load(ranks);
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
    Engine engine(std::move(model), nullptr, {}, engine_config);
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
  const Outputs whole = run({});
  EXPECT_GT(num_preemptions_, 0);
  EXPECT_EQ(run(GetParam()), whole);
  EXPECT_GT(num_preemptions_, 0);
}

std::string name_of(const testing::TestParamInfo<RanksCase>& param) {
  return str(param.param.num_ranks, "_ranks_in_", param.param.num_stages);
}

INSTANTIATE_TEST_SUITE_P(All, EngineRanks,
                         testing::Values(RanksCase{2, 1}, RanksCase{2, 2}, RanksCase{4, 2}),
                         name_of);

}  // namespace
}  // namespace halley
