// Pooled hidden states of real (tiny) models against transformers, through the engine.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/file.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/engine/engine.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"

namespace halley {
namespace {

// The values are about 1. f32 accumulation in another order, and 6 digits in the file.
constexpr double kToleranceF32 = 5e-5;
// Keys and values rounded to f16: 2^-11 relative each.
constexpr double kToleranceF16 = 5e-3;
// Gemma's factor on the embedding, the root of 128, is rounded to the weights' f16 here and not
// there: 1e-4 relative.
constexpr double kToleranceOfGemma = 5e-4;

std::filesystem::path testdata() { return std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata"; }

struct EmbeddingCase {
  std::string family;
  KvDType kv_dtype = KvDType::kF32;
  int64_t num_rows_max = 64;  // of a step
  double tolerance = kToleranceF32;
};

class HiddenStatesOf : public testing::TestWithParam<EmbeddingCase> {
 protected:
  HiddenStatesOf() : pool_(2), context_{pool_} {}

  std::unique_ptr<Engine> make_engine() {
    const std::filesystem::path folder = testdata() / "models" / GetParam().family;
    const auto source = open_checkpoint_weights(folder);
    auto model = load_model(context_, HfConfig::load(folder), *source, {}).model;
    EngineConfig config;
    config.kv_dtype = GetParam().kv_dtype;
    config.page_tokens = 8;
    config.max_model_len = 128;
    config.max_num_seqs = 4;
    config.max_num_batched_tokens = GetParam().num_rows_max;
    return std::make_unique<Engine>(std::move(model), nullptr, std::vector<int32_t>{}, config);
  }

  ThreadPool pool_;
  ExecContext context_;
};

std::vector<std::vector<float>> pooled(Engine& engine,
                                       const std::vector<GenerateRequest>& requests) {
  std::vector<std::vector<float>> vectors(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const SubmitResult result =
        engine.submit(requests[i], i, [&vectors, i](const TokenEvent& event) {
          EXPECT_EQ(event.finish_reason.has_value(), true);
          vectors[i] = event.pooled;
        });
    EXPECT_EQ(result.status, Submit::kQueued) << result.message;
  }
  engine.wait_until_idle();
  return vectors;
}

GenerateRequest request_of(const Json& golden, Pooling::Kind kind) {
  GenerateRequest request;
  request.prompt_ids = golden["ids"].get<std::vector<int32_t>>();
  request.pooling = Pooling{.kind = kind};
  return request;
}

void expect_near(const std::vector<float>& actual, const Json& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i].get<double>(), tolerance) << i;
  }
}

TEST_P(HiddenStatesOf, AreThoseOfTransformers) {
  const std::string path = (testdata() / "embeddings/golden.json").string();
  const Json goldens = parse_json(read_text_file(path, 1 << 20), path)[GetParam().family];
  const auto engine = make_engine();
  std::vector<GenerateRequest> requests;
  for (const Json& golden : goldens) {
    requests.push_back(request_of(golden, Pooling::Kind::kLast));
    requests.push_back(request_of(golden, Pooling::Kind::kMean));
  }
  // Twice: the second time the prefix cache has the prompts.
  for (int round = 0; round < 2; ++round) {
    const std::vector<std::vector<float>> vectors = pooled(*engine, requests);
    const double tolerance = GetParam().tolerance;
    for (size_t i = 0; i < goldens.size(); ++i) {
      SCOPED_TRACE(i);
      expect_near(vectors[2 * i], goldens[i]["last"], tolerance);
      expect_near(vectors[2 * i + 1], goldens[i]["mean"], tolerance);
    }
  }
  EXPECT_GT(engine->stats().num_cached_prompt_tokens, 0);
}

// Bits: neither chunks nor other requests in the same steps nor cached prefixes change them.
TEST_P(HiddenStatesOf, AreTheSameBitsInAnyBatch) {
  const std::string path = (testdata() / "embeddings/golden.json").string();
  const Json golden = parse_json(read_text_file(path, 1 << 20), path)[GetParam().family][0];
  const std::vector<GenerateRequest> alone = {request_of(golden, Pooling::Kind::kLast)};
  const std::vector<GenerateRequest> mean_alone = {request_of(golden, Pooling::Kind::kMean)};
  const std::vector<float> last = pooled(*make_engine(), alone)[0];
  const std::vector<float> mean = pooled(*make_engine(), mean_alone)[0];
  const auto engine = make_engine();
  std::vector<GenerateRequest> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.push_back(alone[0]);
    crowd.push_back(mean_alone[0]);
    crowd.push_back(request_of(golden, Pooling::Kind::kMean));
    crowd.back().prompt_ids.resize(5 + static_cast<size_t>(i));
  }
  const std::vector<std::vector<float>> vectors = pooled(*engine, crowd);
  for (size_t i = 0; i < crowd.size(); i += 3) {
    EXPECT_EQ(vectors[i], last) << i;
    EXPECT_EQ(vectors[i + 1], mean) << i;
  }
}

std::string name_of_case(const testing::TestParamInfo<EmbeddingCase>& info) {
  return info.param.family + "_" + name_of(info.param.kv_dtype) + "_" +
         std::to_string(info.param.num_rows_max);
}

INSTANTIATE_TEST_SUITE_P(
    Families, HiddenStatesOf,
    testing::Values(EmbeddingCase{"gemma2", KvDType::kF32, 64, kToleranceOfGemma},
                    EmbeddingCase{"llama"}, EmbeddingCase{"opt"}, EmbeddingCase{"phi3"},
                    EmbeddingCase{"qwen3"}, EmbeddingCase{"qwen3_moe"},
                    EmbeddingCase{"qwen3", KvDType::kF32, 5},
                    EmbeddingCase{"qwen3", KvDType::kF16, 64, kToleranceF16}),
    name_of_case);

}  // namespace
}  // namespace halley
