// GGUF files of every architecture that is read, against transformers: the files of testdata/gguf
// are the checkpoints of testdata/models, so that the goldens of those are theirs.
#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/checkpoint/weights/model_weights.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

// As in parity_test.cc.
constexpr double kLogitsTolerance = 2e-5;
constexpr double kLogsumexpTolerance = 1e-4;
// Kernels of quantized weights multiply activations as 21-bit fixed point.
constexpr double kQuantizedLogitsTolerance = 1e-4;

struct RunResult {
  Deviation deviation;
  std::vector<int32_t> greedy_ids;
  ModelPlan plan;
};

RunResult run(const std::filesystem::path& path, const Golden& golden) {
  const HfConfig config = HfConfig::load(path);
  const auto source = open_model_weights(path);
  DecoderConfig decoder = read_decoder_config(config, *source, 0);
  if (decoder.family.starts_with("gemma")) {  // the reference does not round its factor
    decoder.embedding_scale =
        static_cast<float>(std::sqrt(static_cast<double>(decoder.hidden_size)));
  }
  ThreadPool pool(2);
  ExecContext context{pool};
  LoadedDecoder loaded = load_decoder(context, config, decoder, *source, {});
  const TestCache cache(loaded.model->shape(), KvDType::kF32, 1, 128);
  const auto logits =
      forward_all_rows(*loaded.model, cache, {{.sequence = 0, .ids = golden.input_ids}});
  return {compare(golden, logits, loaded.model->shape().vocab_size),
          decode_greedily(*loaded.model, cache, golden.input_ids, golden.greedy_ids.size()),
          std::move(loaded.plan)};
}

class GgufModel : public testing::TestWithParam<const char*> {};

TEST_P(GgufModel, HasLogitsAndGreedyTokensOfTheReference) {
  const std::string family = GetParam();
  const Golden golden =
      read_golden(read_test_json(testdata("models/" + family + "/golden_f32.json")));
  const RunResult result = run(testdata("gguf/" + family + ".gguf"), golden);
  EXPECT_LE(result.deviation.logits, kLogitsTolerance);
  EXPECT_LE(result.deviation.logsumexp, kLogsumexpTolerance);
  EXPECT_EQ(result.deviation.num_wrong_argmax, 0);
  EXPECT_EQ(result.greedy_ids, golden.greedy_ids);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufModel,
                         testing::Values("llama", "llama_mha_tied", "mistral_swa", "qwen2", "qwen3",
                                         "qwen3_moe", "gemma2", "gemma3_text", "phi3", "smollm3",
                                         "olmo2", "olmo3", "granite", "glm4", "qwen2_5_vl"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GgufModel, OfQuantizedMatricesHasTheLogitsOfTheirValues) {
  const Golden golden = read_golden(read_test_json(testdata("gguf/quantized.json")));
  const RunResult result = run(testdata("gguf/quantized.gguf"), golden);
  EXPECT_LE(result.deviation.logits, kQuantizedLogitsTolerance);
  EXPECT_LE(result.deviation.logsumexp, kQuantizedLogitsTolerance);
  EXPECT_EQ(result.deviation.num_wrong_argmax, 0);
  EXPECT_EQ(result.greedy_ids, golden.greedy_ids);
  EXPECT_EQ(result.plan.format, "gguf");
  for (const ModelPart& part : result.plan.parts) {
    for (const LinearPlan& plan : part.plans) {
      EXPECT_EQ(is_quantized(plan.weight.layout), part.kind != std::string("norm")) << plan.name;
    }
  }
}

}  // namespace
}  // namespace halley
