#include "halley/evaluation/evaluation.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Logits and sums are f32 in a forward; both paths run the same kernels on other row counts.
constexpr double kLogProbTolerance = 1e-4;

constexpr const char* kModel = HALLEY_SOURCE_DIR "/models/demo-21m";
constexpr const char* kTextPath = HALLEY_SOURCE_DIR "/testdata/text/docs_heldout.txt";
constexpr WindowOptions kWindows = {.window = 32, .num_windows = 2};

const EvalProgress kNoProgress = [](double, double) {};

LoadedModel load(const ModelOptions& options) {
  return load_model_by(options, {}, 1,
                       [&](ExecContext& context, const ModelFiles& files, const LoadOptions& how) {
                         return load_here(context, options.ranks, files, {}, how);
                       });
}

ModelOptions demo_options() {
  ModelOptions options;
  options.model = kModel;
  options.threads = 1;
  return options;
}

EvaluatedModel demo_model() {
  static LoadedModel loaded = load(demo_options());
  return {loaded, kv_dtype_of(demo_options(), *loaded.model)};
}

/// -log p of `id` by a row of logits.
double nll_of(std::span<const float> logits, int32_t id) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - logits[static_cast<size_t>(id)];
}

class EvalTaskTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  TaskResult run(const std::string& text) const {
    std::ofstream(path_) << text;
    return eval_task(demo_model(), *load_tokenizer(kModel), path_, kNoProgress);
  }

  const std::string path_ = testing::TempDir() + "evaluation_test.jsonl";
};

TEST(Estimate, HasNullBoundsWithoutAnInterval) {
  const OrderedJson one = json_of(Estimate{.value = 0.25, .interval = {}});
  EXPECT_EQ(one.at("value"), 0.25);
  EXPECT_TRUE(one.at("low").is_null());
  EXPECT_TRUE(one.at("high").is_null());
  const OrderedJson many = json_of(Estimate{.value = 2, .interval = {{1.5, 3}}});
  EXPECT_EQ(many.at("low"), 1.5);
  EXPECT_EQ(many.at("high"), 3);
}

TEST(LogitComparison, HasAllMeasuresInItsJson) {
  const OrderedJson json = json_of(LogitComparison{.num_tokens = 12,
                                                   .num_windows = 3,
                                                   .reference_perplexity = 10,
                                                   .perplexity = 11,
                                                   .log_perplexity_increase = {0.1, {}},
                                                   .perplexity_ratio = {1.1, {}},
                                                   .kl_divergence = {0.02, {{0.01, 0.03}}},
                                                   .kl_p99 = 0.5,
                                                   .kl_max = 0.75,
                                                   .top1_agreement = {0.9, {}}});
  EXPECT_EQ(json.at("perplexity"), 11);
  EXPECT_EQ(json.at("reference_perplexity"), 10);
  EXPECT_EQ(json.at("num_tokens"), 12);
  EXPECT_EQ(json.at("num_windows"), 3);
  EXPECT_EQ(json.at("perplexity_ratio").at("value"), 1.1);
  EXPECT_EQ(json.at("kl_divergence").at("high"), 0.03);
  EXPECT_EQ(json.at("kl_p99"), 0.5);
  EXPECT_EQ(json.at("kl_max"), 0.75);
  EXPECT_EQ(json.at("top1_agreement").at("value"), 0.9);
}

TEST(EvalPerplexity, IsThatOfTheLogits) {
  const EvalText text = load_eval_text(kModel, kTextPath, {.window = 32, .num_windows = 1});
  const OrderedJson json = eval_perplexity(demo_model(), text, 32, "", kNoProgress);
  const std::vector<float> logits = eval_logits(demo_model(), text.ids);
  const size_t vocab_size = logits.size() / text.ids.size();
  double nll = 0;
  for (size_t i = 0; i + 1 < text.ids.size(); ++i) {
    nll += nll_of({logits.data() + i * vocab_size, vocab_size}, text.ids[i + 1]);
  }
  EXPECT_EQ(json.at("num_tokens"), 31);
  EXPECT_NEAR(json.at("nll").get<double>(), nll, 31 * kLogProbTolerance);
}

TEST(EvalPerplexity, TellsItsProgressAndEndsByWhatThatThrows) {
  const EvalText text = load_eval_text(kModel, kTextPath, kWindows);
  double done = 0, total = 0;
  eval_perplexity(demo_model(), text, 32, "", [&](double num_done, double num_total) {
    done = num_done;
    total = num_total;
  });
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, 62);
  EXPECT_THROW(
      eval_perplexity(demo_model(), text, 32, "", [](double, double) { throw InputError("end"); }),
      InputError);
}

TEST(EvalLogits, RejectsIdsThatTheModelCannotTake) {
  EXPECT_THAT([] { eval_logits(demo_model(), {}); },
              ThrowsMessage<InputError>(HasSubstr("logits: expected 1 to ")));
  EXPECT_THAT([] { eval_logits(demo_model(), {1 << 30}); },
              ThrowsMessage<InputError>(HasSubstr("1073741824")));
  EXPECT_THAT([] { eval_logits(demo_model(), std::vector<int32_t>(1 << 16, 1)); },
              ThrowsMessage<InputError>(HasSubstr("got 65536.")));
}

TEST(CompareWith, FindsNoDivergenceOfAModelFromItself) {
  const EvalText text = load_eval_text(kModel, kTextPath, kWindows);
  Reference reference(kModel, demo_options(), "auto", load);
  const LogitComparison comparison =
      compare_with(demo_model(), reference, text, kWindows, kNoProgress);
  EXPECT_NEAR(comparison.kl_divergence.value, 0, 1e-9);
  EXPECT_EQ(comparison.top1_agreement.value, 1);
  const OrderedJson json = json_of(comparison, demo_model(), reference, text, kWindows.window);
  EXPECT_EQ(json.at("reference"), kModel);
  EXPECT_EQ(json.at("reference_kv_dtype"), json.at("kv_dtype"));
}

/// In the order of the bits that a weight keeps; two planes keep all.
TEST(CompareWith, FindsLittleDivergenceOfAModelThatIsRoundedAtLoad) {
  const EvalText text = load_eval_text(kModel, kTextPath, kWindows);
  const auto divergence_of = [&](const std::string& quantization) {
    ModelOptions options = demo_options();
    options.quantization = quantization;
    LoadedModel loaded = load(options);
    Reference reference(kModel, options, "auto", load);
    const EvaluatedModel model = {loaded, kv_dtype_of(options, *loaded.model)};
    return compare_with(model, reference, text, kWindows, kNoProgress).kl_divergence.value;
  };
  const double of_planes = divergence_of("nestedfp"), of_bytes = divergence_of("int8-weight-only"),
               of_floats = divergence_of("fp8"), of_halves = divergence_of("int4-rtn");
  EXPECT_LT(of_planes, 1e-6);
  EXPECT_LT(of_planes, of_bytes);
  EXPECT_LT(of_bytes, of_floats);
  EXPECT_LT(of_floats, of_halves);
  EXPECT_LT(of_halves, 0.1);
}

TEST(Quantization, IsRejectedWhereTheCheckpointHasOne) {
  ModelOptions options = demo_options();
  options.model = HALLEY_SOURCE_DIR "/testdata/quantized/gptq_4bit_channel_sym";
  options.quantization = "fp8";
  EXPECT_THAT([&] { open_model_files(options); },
              ThrowsMessage<InputError>(
                  HasSubstr("--quantization: expected weights in full precision, got \"gptq\"")));
}

TEST(CompareWith, TakesAFileOfLogProbabilitiesAsTheReference) {
  const std::string path = testing::TempDir() + "evaluation_test.safetensors";
  const EvalText text = load_eval_text(kModel, kTextPath, kWindows);
  eval_perplexity(demo_model(), text, kWindows.window, path, kNoProgress);
  Reference reference(path, demo_options(), "auto", load);
  EXPECT_FALSE(reference.is_model());
  const LogitComparison comparison =
      compare_with(demo_model(), reference, text, kWindows, kNoProgress);
  EXPECT_NEAR(comparison.kl_divergence.value, 0, 1e-4);  // 16-bit log probabilities
  EXPECT_THAT([&] { Reference(path, demo_options(), "int8", load); },
              ThrowsMessage<InputError>(HasSubstr("--reference-kv-dtype: expected --reference")));
  std::filesystem::remove(path);
}

TEST_F(EvalTaskTest, MeasuresItems) {
  const TaskResult result =
      run(R"({"goal": "To see", "sol1": "open your eyes", "sol2": "qx zzq vv", "label": 0})"
          "\n\n"
          R"({"goal": "To see", "sol1": "qx zzq vv", "sol2": "open your eyes", "label": 1})");
  EXPECT_STREQ(result.layout, "PIQA");
  EXPECT_EQ(result.num_items, 2U);
  EXPECT_EQ(result.log_likelihoods.size(), 4U);
  EXPECT_EQ(result.accuracy.accuracy, 1);
  EXPECT_EQ(json_of(result, KvDType::kF16).at("accuracy"), 1);
}

TEST_F(EvalTaskTest, RejectsFilesWithoutItemsOrWithItemsOfTwoTasks) {
  EXPECT_THAT([&] { run("\n"); }, ThrowsMessage<InputError>(HasSubstr("at least one item")));
  const std::string piqa = R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 0})";
  const std::string winogrande =
      R"({"sentence": "a _ b", "option1": "c", "option2": "d", "answer": "1"})";
  EXPECT_THAT([&] { run(piqa + "\n" + winogrande); },
              ThrowsMessage<InputError>(HasSubstr("line 2: expected an item of PIQA")));
}

}  // namespace
}  // namespace halley
