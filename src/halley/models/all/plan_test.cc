// Plans and built-in shapes against sizes that can be checked by hand.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/base/decoder.h"

namespace halley {
namespace {

int64_t num_weights(const std::string& name) {
  int64_t total = 0;
  for (const TensorInfo& info : list_dense_tensors(read_decoder_config(builtin_config(name)))) {
    total += num_elements_of(info.shape).value();
  }
  return total;
}

TEST(BuiltinConfigs, HaveTheWeightsOfThePublishedModels) {
  EXPECT_EQ(num_weights("llama-1b"), 985'753'600);  // 0.986e9
  EXPECT_EQ(num_weights("llama-3-8b"), 8'030'261'248);
  EXPECT_EQ(num_weights("llama-3-70b"), 70'553'706'496);
  EXPECT_EQ(num_weights("mistral-7b"), 7'248'023'552);
  EXPECT_EQ(num_weights("qwen2-7b"), 7'615'616'512);
  EXPECT_EQ(num_weights("qwen2-72b"), 72'706'203'648);
  EXPECT_EQ(num_weights("qwen3-8b"), 8'190'735'360);
  EXPECT_EQ(num_weights("qwen3-30b-a3b"), 30'532'122'624);
  EXPECT_EQ(num_weights("gemma2-9b"), 9'241'705'984);
  EXPECT_EQ(num_weights("mixtral-8x7b"), 46'702'792'704);
}

TEST(BuiltinConfigs, ListTheTensorsOfTheShippedModel) {
  const auto source =
      open_checkpoint_weights(std::filesystem::path(HALLEY_SOURCE_DIR) / "models/demo-21m");
  const auto infos = list_dense_tensors(read_decoder_config(builtin_config("demo-21m")));
  ASSERT_EQ(infos.size(), source->tensors().size());
  for (size_t i = 0; i < infos.size(); ++i) {
    EXPECT_EQ(infos[i].name, source->tensors()[i].name);
    EXPECT_EQ(infos[i].shape, source->tensors()[i].shape);
    EXPECT_EQ(infos[i].dtype, source->tensors()[i].dtype);
    EXPECT_EQ(infos[i].num_bytes, source->tensors()[i].num_bytes);
  }
}

TEST(BuiltinConfigs, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT([] { builtin_config("gpt-5"); },
              testing::ThrowsMessage<InputError>(testing::AllOf(
                  testing::StartsWith("built-in shape: expected one of demo-21m, llama-1b"),
                  testing::HasSubstr("got \"gpt-5\"."))));
  for (const std::string& name : builtin_config_names()) {
    EXPECT_GT(read_decoder_config(builtin_config(name)).num_layers, 0) << name;
  }
}

TEST(ModelPlan, CacheIsWhatTheCheckpointDeclares) {
  const auto dir = testdata("quantized/qoq_g128");
  const auto source = open_checkpoint_weights(dir);
  Json json = read_test_json(dir / "config.json");
  json["quantization_config"] = read_test_json(dir / "quant_config.json");
  for (const auto& [bits, dtype] :
       {std::pair(16, KvDType::kF16), {8, KvDType::kInt8}, {4, KvDType::kInt4}}) {
    json["quantization_config"]["kv_bits"] = bits;
    const ModelPlan plan = plan_model(HfConfig::parse(json.dump(), "config.json"), *source);
    EXPECT_EQ(shape_of(plan.config).kv_dtype_default, dtype) << bits;
  }
}

TEST(ModelPlan, AddsUpForATinyLlama) {
  const auto dir = testdata("models/llama");
  const auto source = open_checkpoint_weights(dir);
  const ModelPlan plan = plan_model(HfConfig::load(dir), *source);
  // 384 * 128 embeddings and as many output weights; a layer: 256 * 128 q, k, v; 128 * 128 o;
  // 3 * 256 * 128 MLP. In f16, and 5 norms of 128: f16 in the file, f32 in memory.
  const size_t matrices = 2 * (2 * 384 * 128 + 2 * (256 * 128 + 128 * 128 + 3 * 256 * 128));
  EXPECT_EQ(plan.stored_bytes, matrices + 2 * 5 * 128);
  EXPECT_EQ(plan.packed_bytes, matrices + 4 * 5 * 128);
  EXPECT_EQ(plan.kv_bytes_per_token, size_t{2} * 2 * 2 * 32 * 2);
  EXPECT_EQ(plan.format, "none");
  ASSERT_EQ(plan.parts.size(), size_t{1 + 2 * 6 + 2});
  EXPECT_EQ(plan.parts[0].name, "embedding");
  EXPECT_EQ(plan.parts[0].plans[0].kernel, nullptr);
  EXPECT_EQ(plan.parts[1].name, "layers.0.input_norm");
  EXPECT_EQ(plan.parts[1].kind, "norm");
  EXPECT_EQ(plan.parts[2].name, "layers.0.qkv");
  EXPECT_EQ(plan.parts[2].plans[0].name, "model.layers.0.self_attn.{q,k,v}_proj");
  EXPECT_EQ(plan.parts[2].plans[0].out_features, 256);
  EXPECT_NE(plan.parts[2].plans[0].kernel, nullptr);
  EXPECT_EQ(plan.parts.back().name, "lm_head");
}

TEST(ModelPlan, TiedEmbeddingIsCountedOnceAndHasAKernel) {
  const auto dir = testdata("models/llama_mha_tied");
  const auto source = open_checkpoint_weights(dir);
  const ModelPlan plan = plan_model(HfConfig::load(dir), *source);
  EXPECT_NE(plan.parts[0].plans[0].kernel, nullptr);
  EXPECT_EQ(plan.parts.back().name, "final_norm");
}

/// A plan needs no GPU, only a build that has code for one.
TEST(ModelPlan, ExpertsOnAGpuRunTogether) {
  if (!is_built_with_cuda()) GTEST_SKIP() << "built without CUDA";
  const auto dir = testdata("models/mixtral");
  const auto source = open_checkpoint_weights(dir);
  LoadOptions options;
  options.device = "cuda";
  const ModelPlan plan = plan_model(HfConfig::load(dir), *source, options);
  int num_experts = 0;
  for (const ModelPart& part : plan.parts) {
    const bool is_expert = part.name.find(".experts.") != std::string::npos;
    num_experts += is_expert ? 1 : 0;
    for (const GpuLinearPlan& linear : part.gpu_plans) {
      EXPECT_EQ(linear.kernel == "grouped_gemm_f16", is_expert)
          << part.name << " " << linear.kernel;
    }
    for (const LinearPlan& linear : part.plans) EXPECT_EQ(linear.kernel, nullptr) << part.name;
  }
  EXPECT_GT(num_experts, 0);
}

TEST(LoadProgress, EndsAtThePlannedBytes) {
  for (const char* family : {"opt", "qwen3_moe", "gemma2"}) {
    const auto dir = testdata(std::string("models/") + family);
    const HfConfig config = HfConfig::load(dir);
    const auto source = open_checkpoint_weights(dir);
    ThreadPool pool(1);
    ExecContext context{pool};
    std::vector<size_t> steps;
    size_t last_total = 0;
    load_model(context, config, *source, [&](size_t done, size_t total) {
      steps.push_back(done);
      last_total = total;
    });
    EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
    EXPECT_EQ(steps.back(), last_total) << family;
    EXPECT_EQ(last_total, plan_model(config, *source).packed_bytes) << family;
  }
}

TEST(DummyWeights, RunInEveryType) {
  for (const char* dtype : {"float16", "bfloat16", "float32"}) {
    Json json = read_test_json(testdata("models/llama/config.json"));
    json["dtype"] = dtype;
    const HfConfig config = HfConfig::parse(json.dump(), "config.json");
    const auto source = make_dummy_weights(list_dense_tensors(read_decoder_config(config)));
    ThreadPool pool(1);
    ExecContext context{pool};
    const auto model = load_model(context, config, *source, {}).model;
    const TestCache cache(model->shape(), model->shape().kv_dtype_default, 1, 64);
    for (const float logit : forward_all_rows(*model, cache, {{.sequence = 0, .ids = {1, 2, 3}}})) {
      ASSERT_TRUE(std::isfinite(logit)) << dtype;
    }
  }
}

}  // namespace
}  // namespace halley
