// The engine with real (tiny) models and LoRA adapters: what PEFT's model generates, with other
// requests in the batch, and above weights of few bits.
#include <gtest/gtest.h>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/engine/generate.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/lora/load_adapter.h"

namespace halley {
namespace {

GenerateRequest request_of(const Golden& golden, std::shared_ptr<const Adapter> adapter) {
  GenerateRequest request;
  request.prompt_ids = golden.input_ids;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = static_cast<int64_t>(golden.greedy_ids.size());
  request.adapter = std::move(adapter);
  return request;
}

EngineConfig cut_prompts() {
  EngineConfig config;
  config.kv_dtype = KvDType::kF32;
  config.page_tokens = 8;
  config.max_model_len = 120;
  config.max_num_batched_tokens = 20;
  return config;
}

class AdapterModels : public testing::TestWithParam<const char*> {};

TEST_P(AdapterModels, GeneratesWhatPeftsModelDoes) {
  const Json json = read_test_json(testdata(std::string("lora/") + GetParam() + "/golden.json"));
  const Golden golden = read_golden(json);
  const auto dir = testdata(json.at("base").get<std::string>());
  const Golden plain = read_golden(read_test_json(dir / "golden_f32.json"));
  const auto source = open_checkpoint_weights(dir);
  ThreadPool pool(2);
  ExecContext context{pool};
  LoadedDecoder loaded = load_model(context, HfConfig::load(dir), *source, {});
  const auto adapter =
      load_adapter(testdata(std::string("lora/") + GetParam()), loaded.plan.config, GetParam());
  Engine engine(std::move(loaded.model), nullptr, {}, cut_prompts());

  const auto results =
      generate_all(engine, {request_of(plain, nullptr), request_of(golden, adapter),
                            request_of(plain, nullptr), request_of(golden, adapter)});

  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].token_ids, i % 2 == 0 ? plain.greedy_ids : golden.greedy_ids) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AdapterModels,
                         testing::Values("llama", "qwen3_stabilized", "phi3_fused",
                                         "mixtral_attention"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace halley
