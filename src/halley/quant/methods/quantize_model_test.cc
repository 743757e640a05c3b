#include "halley/quant/methods/quantize_model.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/quant/methods/testing/quantize_run.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

class QuantizeFamilyTest : public testing::TestWithParam<std::string> {
 protected:
  /// Rounding may send a token to another expert, which moves its logits far.
  static double rounding_limit(double limit) {
    return GetParam() == "mixtral" || GetParam() == "qwen3_moe" ? 0.25 : limit;
  }
};

TEST_P(QuantizeFamilyTest, EightBitsKeepTheModel) {
  const TestFolder folder;
  const auto summary =
      quantize(job_for(GetParam(), folder / "out", "rtn", {.bits = 8, .group_size = 32}));
  const double error =
      distance(logits_of(testdata("models") / GetParam()), logits_of(folder / "out"));
  EXPECT_LT(error, rounding_limit(0.02)) << GetParam();
  EXPECT_GT(error, 0);
  for (const LinearReport& report : summary.reports) {
    if (!report.is_quantized) continue;
    EXPECT_LT(report.relative_error, 0.01) << report.name;
    EXPECT_GT(report.relative_error, 0) << report.name;
  }
}

TEST_P(QuantizeFamilyTest, SmoothingAndSearchKeepTheModel) {
  const TestFolder folder;
  quantize(job_for(GetParam(), folder / "out", "smoothquant"));
  EXPECT_LT(distance(logits_of(testdata("models") / GetParam()), logits_of(folder / "out")),
            rounding_limit(0.05));
}

TEST_P(QuantizeFamilyTest, CompensationBeatsRounding) {
  const TestFolder folder;
  const RecipeChanges changes = {.bits = 4, .group_size = 64, .is_symmetric = true};
  if (GetParam() == "yi") {  // 16 outputs of k_proj, which the files of the method cannot hold
    EXPECT_THROW(quantize(job_for("yi", folder / "solved", "gptq", changes)), UnsupportedError);
    return;
  }
  quantize(job_for(GetParam(), folder / "rounded", "rtn", changes));
  quantize(job_for(GetParam(), folder / "solved", "gptq", changes));
  const std::vector<float> expected = logits_of(testdata("models") / GetParam());
  EXPECT_LT(distance(expected, logits_of(folder / "solved")),
            1.05 * distance(expected, logits_of(folder / "rounded")));
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeFamilyTest,
                         testing::Values("llama", "llama_mha_tied", "mistral", "mixtral", "qwen2",
                                         "qwen3", "qwen3_moe", "phi3", "gemma2", "gemma3_text",
                                         "opt", "yi", "olmo2", "olmoe", "granite", "glm4", "gemma3",
                                         "qwen2_5_vl"));

class QuantizeMethodTest : public testing::TestWithParam<std::string> {};

TEST_P(QuantizeMethodTest, SameBytesForAnyNumberOfThreads) {
  const TestFolder folder;
  quantize(job_for("llama", folder / "one", GetParam()), 1);
  quantize(job_for("llama", folder / "three", GetParam()), 3);
  EXPECT_EQ(bytes_of(folder / "one" / "model.safetensors"),
            bytes_of(folder / "three" / "model.safetensors"));
  EXPECT_EQ(bytes_of(folder / "one" / "config.json"), bytes_of(folder / "three" / "config.json"));
  EXPECT_LT(distance(logits_of(testdata("models/llama")), logits_of(folder / "one")), 0.9);
}

TEST_P(QuantizeMethodTest, GoesOnAfterAnInterruption) {
  const TestFolder folder;
  quantize(job_for("llama", folder / "whole", GetParam()));
  const QuantizeJob job = job_for("llama", folder / "parts", GetParam());
  const auto stop_in_second_layer = [](const QuantizeProgress& progress) {
    if (progress.num_layers_done == 1) throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(quantize(job, 2, stop_in_second_layer), std::runtime_error);
  EXPECT_FALSE(fs::exists(job.out_dir));
  const QuantizeSummary summary = quantize(job);
  EXPECT_EQ(summary.num_layers_resumed, 1);
  EXPECT_EQ(bytes_of(folder / "whole" / "model.safetensors"),
            bytes_of(job.out_dir / "model.safetensors"));
  EXPECT_EQ(bytes_of(folder / "whole" / "config.json"), bytes_of(job.out_dir / "config.json"));
  EXPECT_FALSE(fs::exists(job.out_dir.string() + ".partial"));
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeMethodTest,
                         testing::Values("rtn", "gptq", "awq", "smoothquant", "fp8", "qoq", "fmpq",
                                         "nestedfp"));

TEST(QuantizeModelTest, NestedWeightsAreTheModelBitForBit) {
  const TestFolder folder;
  quantize(job_for("llama", folder / "out", "nestedfp"));
  EXPECT_EQ(logits_of(testdata("models/llama")), logits_of(folder / "out"));
}

TEST(QuantizeModelTest, CalibrationDecidesNothingWhereNoMethodNeedsIt) {
  const TestFolder folder;
  for (const std::string method : {"rtn", "fp8", "nestedfp"}) {
    quantize(job_for("llama", folder / (method + "_with"), method));
    const QuantizeJob job =
        job_for("llama", folder / (method + "_without"), method, {.has_calibration = false});
    const QuantizeSummary summary = quantize(job);
    EXPECT_TRUE(summary.roundings.empty());
    for (const char* file : {"model.safetensors", "config.json"}) {
      EXPECT_EQ(bytes_of(folder / (method + "_with") / file), bytes_of(job.out_dir / file))
          << method;
    }
    for (const LinearReport& report : summary.reports) {
      EXPECT_EQ(report.relative_error > 1e-3, method != "nestedfp") << method << report.name;
      EXPECT_LT(report.relative_error, 0.2) << method << report.name;
    }
  }
}

TEST(QuantizeModelTest, NoneWithoutCalibrationIsACopy) {
  const TestFolder folder;
  const QuantizeJob job = job_for("llama", folder / "out", "none", {.has_calibration = false});
  quantize(job);
  const auto original = open_checkpoint_weights(job.model_dir);
  const auto written = open_checkpoint_weights(job.out_dir);
  ASSERT_EQ(written->tensors().size(), original->tensors().size());
  for (const TensorInfo& info : original->tensors()) {
    const TensorView a = original->view(info), b = written->view(*written->find(info.name));
    EXPECT_TRUE(std::equal(a.data, a.data + a.num_bytes(), b.data)) << info.name;
  }
}

TEST(QuantizeModelTest, NoBlockHasEightBitsWhereNoneMay) {
  const TestFolder folder;
  const QuantizeSummary none =
      quantize(job_for("llama", folder / "none", "fmpq", {.s8_share_max = 0.0}));
  EXPECT_EQ(none.s4_share, 1);
  const QuantizeSummary all =
      quantize(job_for("llama", folder / "all", "fmpq", {.s8_share_max = 1.0}));
  EXPECT_EQ(all.s4_share, 0);
}

TEST(QuantizeModelTest, OverridesAreWrittenAndRead) {
  const TestFolder folder;
  QuantizeJob job = job_for("llama", folder / "out", "gptq");
  job.overrides.push_back(parse_layer_override("*.down_proj=none"));
  job.overrides.push_back(parse_layer_override("*.o_proj=bits=8,group=32"));
  const QuantizeSummary summary = quantize(job);
  const auto source = open_checkpoint_weights(job.out_dir);
  EXPECT_NE(source->find("model.layers.1.mlp.down_proj.weight"), nullptr);
  EXPECT_EQ(source->find("model.layers.1.mlp.down_proj.qweight"), nullptr);
  EXPECT_EQ(source->find("model.layers.1.self_attn.o_proj.qweight")->shape.at(0), 128 / 4);
  EXPECT_LT(distance(logits_of(testdata("models/llama")), logits_of(job.out_dir)), 0.5);
  for (const LinearReport& report : summary.reports) {
    EXPECT_EQ(report.is_quantized, !report.name.ends_with("down_proj")) << report.name;
  }
}

TEST(QuantizeModelTest, RejectsWhatItMustNotTouch) {
  const TestFolder folder;
  QuantizeJob job = job_for("llama", folder / "out", "rtn");
  fs::create_directories(job.out_dir);
  EXPECT_NE(message_of(job).find("expected a folder that does not exist"), std::string::npos);
  fs::remove(job.out_dir);
  fs::create_directories(job.out_dir.string() + ".partial");
  std::ofstream(job.out_dir.string() + ".partial/job.txt") << "another";
  EXPECT_NE(message_of(job).find("expected the unfinished work of the same command"),
            std::string::npos);
  fs::remove_all(job.out_dir.string() + ".partial");
  quantize(job);
  QuantizeJob again = job;
  again.model_dir = job.out_dir;
  again.out_dir = folder / "again";
  EXPECT_NE(message_of(again).find("expected a model in full precision"), std::string::npos);
}

TEST(QuantizeModelTest, BlockClipChangesQueriesAndKeysAlone) {
  const TestFolder folder;
  quantize(job_for("llama", folder / "with", "qoq"));
  quantize(job_for("llama", folder / "without", "qoq", {.without = {"block-clip"}}));
  const auto with = open_checkpoint_weights(folder / "with");
  const auto without = open_checkpoint_weights(folder / "without");
  size_t num_different = 0;
  for (const TensorInfo& info : with->tensors()) {
    // Layers behind the first see other inputs.
    if (!info.name.starts_with("model.layers.0.")) continue;
    const TensorView a = with->view(info), b = without->view(*without->find(info.name));
    if (std::equal(a.data, a.data + info.num_bytes, b.data)) continue;
    ++num_different;
    EXPECT_TRUE(info.name.find("q_proj") != std::string::npos ||
                info.name.find("k_proj") != std::string::npos)
        << info.name;
  }
  EXPECT_GT(num_different, 0u);
}

TEST(QuantizeModelTest, NotesWhereTheBlockCannotClip) {
  const TestFolder folder;
  const QuantizeSummary summary = quantize(job_for("phi3", folder / "out", "qoq"));
  const std::string note =
      "layers.0: no block clip: queries and keys are stored as one tensor, "
      "model.layers.0.self_attn.qkv_proj";
  EXPECT_EQ(std::count(summary.notes.begin(), summary.notes.end(), note), 1);
}

TEST(QuantizeModelTest, SaysWhatCannotBeRotated) {
  const TestFolder folder;
  const std::string message = message_of(job_for("gemma2", folder / "out", "qoq"));
  EXPECT_NE(message.find("cannot be rotated"), std::string::npos) << message;
  EXPECT_NE(message.find("--without rotation"), std::string::npos) << message;
}

TEST(CalibrationTokensTest, SequencesLieAtEvenDistances) {
  std::vector<int32_t> text(103);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i);
  const CalibrationTokens tokens = cut_calibration_tokens(text, 4, 10);
  ASSERT_EQ(tokens.num_sequences(), 4);
  EXPECT_EQ(tokens.ids[0], 0);
  EXPECT_EQ(tokens.ids[10], 31);
  EXPECT_EQ(tokens.ids[30], 93);
  EXPECT_EQ(cut_calibration_tokens(text, 1000, 10).num_sequences(), 10);
  EXPECT_THROW(cut_calibration_tokens(text, 1, 104), InputError);
}

}  // namespace
}  // namespace halley
