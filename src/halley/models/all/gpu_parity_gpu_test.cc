// Every family on the GPU against transformers, configurations that checkpoints do not cover, and
// every quantized layout against NumPy.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/json/json.h"
#include "halley/models/all/testing/gpu_test_model.h"

namespace halley {
namespace {

// Logits in standard deviations of their row. Weights are the checkpoint's in f16 and rounded to 8
// bits in bf16; activations between operations are rounded to 11 and 8 bits, a dozen times a layer.
// About twice what an H200 has at most.
constexpr double kToleranceF16 = 5e-3;
constexpr double kToleranceBf16 = 5e-2;
// A router may choose another expert in bf16: transformers in bf16 is up to 0.8 from itself in f32.
constexpr double kToleranceBf16OfRouters = 1e-1;
// The options' f32 weights are rounded to f16 too, and their models have up to four layers.
constexpr double kOptionTolerance = 1.5e-2;
// Tolerance of quantized models, relative to the largest logit.
constexpr double kQuantizedF16 = 3e-3;
constexpr double kQuantizedBf16 = 3e-2;
// Activations, or keys and values, quantized to 8 bits or less: rounding to f16 first moves some of
// them to the next code, a relative step of 1/16 in e4m3 and of 1/7 of the range in s4, in
// accumulations over the 128 inputs that these models have.
constexpr double kRoundedTwice = 1e-1;

double tolerance_of(DType dtype, const DecoderConfig& config) {
  if (dtype == DType::kF16) return kToleranceF16;
  const bool has_router = std::any_of(config.layers.begin(), config.layers.end(),
                                      [](const LayerSpec& layer) { return layer.mlp.router; });
  return has_router ? kToleranceBf16OfRouters : kToleranceBf16;
}

struct FamilyCase {
  std::string family;
  DType dtype;
};

class GpuFamily : public testing::TestWithParam<FamilyCase> {};

/// Each of the reference's tokens must be the most probable but for the tolerance, in decode steps
/// behind the prompt.
void expect_greedy_tokens(CausalLm& model, const TestCache& cache, const Golden& golden,
                          double tolerance) {
  auto num_past = static_cast<int64_t>(golden.input_ids.size()) - 1;
  int32_t next = golden.input_ids.back();
  for (size_t i = 0; i < golden.greedy_ids.size(); ++i) {
    const std::vector<float> row =
        forward_all_rows(model, cache, {{.num_past_tokens = num_past, .ids = {next}}});
    const auto expected = static_cast<size_t>(golden.greedy_ids[i]);
    const float best = *std::max_element(row.begin(), row.end());
    EXPECT_LE(best - row[expected], std::max(1e-2, 2 * tolerance * deviation_of(row)))
        << "token " << i;
    next = golden.greedy_ids[i];
    ++num_past;
  }
}

/// A GPU gets what `inspect` says without one.
TEST(GpuPlan, IsWhatIsLoaded) {
  for (const char* family : {"llama", "llama_mha_tied", "mixtral", "qwen2", "qwen3_moe"}) {
    const auto folder = testdata(std::string("models/") + family);
    LoadOptions options;
    options.device = "cuda";
    const ModelPlan planned =
        plan_model(HfConfig::load(folder), *open_checkpoint_weights(folder), options);
    const GpuTestModel gpu(folder);
    const ModelPlan& loaded = gpu.plan();
    ASSERT_EQ(planned.parts.size(), loaded.parts.size());
    for (size_t i = 0; i < planned.parts.size(); ++i) {
      const ModelPart& part = loaded.parts[i];
      ASSERT_EQ(planned.parts[i].gpu_plans.size(), part.gpu_plans.size());
      for (size_t j = 0; j < part.gpu_plans.size(); ++j) {
        const GpuLinearPlan& plan = planned.parts[i].gpu_plans[j];
        EXPECT_EQ(plan.kernel, part.gpu_plans[j].kernel) << family << " " << part.name;
        EXPECT_EQ(plan.form, part.gpu_plans[j].form) << family << " " << part.name;
        EXPECT_EQ(plan.device_bytes, part.gpu_plans[j].device_bytes) << family << " " << part.name;
      }
    }
  }
}

TEST_P(GpuFamily, LogitsAndGreedyTokensAreTheReferences) {
  const auto& [family, dtype] = GetParam();
  const auto folder = testdata("models/" + family);
  HfConfig config = HfConfig::load(folder);
  auto source = open_checkpoint_weights(folder);
  DecoderConfig decoder = read_decoder_config(config, *source, 0);
  // Checkpoints without golden.json have that of a plain f32 load (parity_test.cc).
  const bool has_given = std::filesystem::exists(folder / "golden.json");
  if (has_given) round_frequencies_to_f16(decoder);
  const double tolerance = tolerance_of(dtype, decoder);
  const GpuTestModel gpu(std::move(config), std::move(decoder), std::move(source), dtype);
  const Golden golden =
      read_golden(read_test_json(folder / (has_given ? "golden.json" : "golden_f32.json")));
  const TestCache cache = gpu.make_cache(1, 128);

  const auto logits =
      forward_all_rows(gpu.model(), cache, {{.sequence = 0, .ids = golden.input_ids}});
  const Deviation deviation = compare(golden, logits, gpu.model().shape().vocab_size);
  std::printf("%s %s: logits %.2g, logsumexp %.2g, %d other argmax\n", family.c_str(),
              name_of(dtype), deviation.logits, deviation.logsumexp, deviation.num_wrong_argmax);
  EXPECT_LE(deviation.logits, tolerance);
  expect_greedy_tokens(gpu.model(), cache, golden, tolerance);
}

std::vector<FamilyCase> family_cases() {
  std::vector<FamilyCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(testdata("models"))) {
    const std::string family = entry.path().filename().string();
    for (const DType dtype : {DType::kF16, DType::kBf16}) cases.push_back({family, dtype});
  }
  std::sort(cases.begin(), cases.end(), [](const FamilyCase& a, const FamilyCase& b) {
    return std::tie(a.family, a.dtype) < std::tie(b.family, b.dtype);
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, GpuFamily, testing::ValuesIn(family_cases()),
                         [](const auto& tested) {
                           return tested.param.family + "_" + name_of(tested.param.dtype);
                         });

class GpuOption : public testing::TestWithParam<std::string> {};

TEST_P(GpuOption, LogitsAreTheReferences) {
  const auto path = testdata("model_options/" + GetParam() + ".json");
  const Json json = read_test_json(path);
  HfConfig config = HfConfig::parse(json.at("config").dump(), path.string());
  const Golden golden = read_golden(json);
  auto source = make_hash_weights(list_dense_tensors(read_decoder_config(config)));
  LoadOptions options;
  options.max_length = json.at("max_length").get<int64_t>();
  const GpuTestModel gpu(std::move(config), std::move(source), options);
  EXPECT_EQ(gpu.plan().activation_dtype, DType::kF16) << "of f32 weights";
  const TestCache cache = gpu.make_cache(1, 128);
  const auto logits =
      forward_all_rows(gpu.model(), cache, {{.sequence = 0, .ids = golden.input_ids}});
  const Deviation deviation = compare(golden, logits, gpu.model().shape().vocab_size);
  std::printf("%s: logits %.2g\n", GetParam().c_str(), deviation.logits);
  EXPECT_LE(deviation.logits, kOptionTolerance);
  expect_greedy_tokens(gpu.model(), cache, golden, kOptionTolerance);
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testdata("model_options"))) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Options, GpuOption, testing::ValuesIn(option_names()),
                         [](const auto& tested) { return tested.param; });

class GpuQuantized : public testing::TestWithParam<std::string> {};

// All tokens in one step, and one by one: GEMV has kernels of its own.
TEST_P(GpuQuantized, HasTheLogitsOfItsWeights) {
  const auto folder = testdata("quantized/" + GetParam());
  const Json expected = read_test_json(folder / "expected.json");
  const auto tokens = expected.at("tokens").get<std::vector<int32_t>>();
  const GpuTestModel gpu(folder);
  const bool is_f16 = gpu.plan().activation_dtype == DType::kF16;
  const bool is_rounded =
      expected.at("activation") != "none" || bits_of(gpu.model().shape().kv_dtype_default) <= 8;
  const double tolerance = is_rounded ? kRoundedTwice : is_f16 ? kQuantizedF16 : kQuantizedBf16;
  for (const size_t step : {tokens.size(), size_t{1}}) {
    const TestCache cache = gpu.make_cache(1, 64);
    std::vector<float> logits;
    for (size_t past = 0; past < tokens.size(); past += step) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(past);
      const auto of_step =
          forward_all_rows(gpu.model(), cache,
                           {{.sequence = 0,
                             .num_past_tokens = static_cast<int64_t>(past),
                             .ids = {begin, begin + static_cast<std::ptrdiff_t>(step)}}});
      logits.insert(logits.end(), of_step.begin(), of_step.end());
    }
    const double error = relative_error(expected.at("logits"), logits);
    std::printf("%s, %zu tokens a step: %.2g\n", GetParam().c_str(), step, error);
    EXPECT_LE(error, tolerance) << step;
  }
}

std::vector<std::string> quantized_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testdata("quantized"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cases, GpuQuantized, testing::ValuesIn(quantized_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace halley
