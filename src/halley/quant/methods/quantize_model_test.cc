#include "halley/quant/methods/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>
#include <stdexcept>

#include <gtest/gtest.h>
#include <unistd.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/quant/base/quant_config.h"

namespace halley {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVocabSize = 384;

CalibrationTokens random_tokens(int64_t num_sequences, int64_t length) {
  CalibrationTokens tokens = {.ids = {}, .sequence_length = length};
  uint32_t state = 7;
  for (int64_t i = 0; i < num_sequences * length; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.ids.push_back(static_cast<int32_t>((state >> 8) % kVocabSize));
  }
  return tokens;
}

/// A folder that is gone when the test ends.
class TestFolder {
 public:
  TestFolder() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::temp_directory_path() / str("halley_quantize_", ::getpid(), "_", info->name());
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TestFolder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

QuantizeJob job_for(const std::string& family, const fs::path& out, const std::string& method,
                    const RecipeChanges& changes = {}) {
  return {.model_dir = testdata("models") / family,
          .out_dir = out,
          .recipe = make_recipe(method, changes),
          .overrides = {},
          .tokens = random_tokens(6, 40),
          .fingerprint = method};
}

QuantizeSummary quantize(const QuantizeJob& job, int num_threads = 2,
                         const std::function<void(const QuantizeProgress&)>& on_progress = {}) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  const HfConfig config = HfConfig::load(job.model_dir);
  const auto source = open_checkpoint_weights(job.model_dir);
  return quantize_model(context, config, *source, job, on_progress);
}

std::vector<float> logits_of(const fs::path& dir, KvDType kv_dtype = KvDType::kF32) {
  ThreadPool pool(2);
  ExecContext context{pool};
  const HfConfig config = HfConfig::load(dir);
  const auto source = open_checkpoint_weights(dir);
  LoadOptions options;
  options.quant = read_quant_config(config, dir);
  const LoadedDecoder loaded = load_model(context, config, *source, {}, options);
  const TestCache cache(loaded.model->shape(), kv_dtype, 1, 64);
  return forward_all_rows(*loaded.model, cache, {{.ids = random_tokens(1, 48).ids}});
}

/// Root mean square of the difference in standard deviations of the expected logits.
double distance(const std::vector<float>& expected, const std::vector<float>& got) {
  double error = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(double{got[i]} - double{expected[i]}, 2);
    sum += expected[i];
    squares += double{expected[i]} * double{expected[i]};
  }
  const auto n = static_cast<double>(expected.size());
  return std::sqrt(error / n) / std::sqrt(squares / n - sum / n * sum / n);
}

std::string bytes_of(const fs::path& path) { return read_text_file(path, size_t{1} << 30); }

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
                                         "opt", "yi"));

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

std::string message_of(const QuantizeJob& job) {
  try {
    quantize(job);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(QuantizeModelTest, NestedWeightsAreTheModelBitForBit) {
  const TestFolder folder;
  quantize(job_for("llama", folder / "out", "nestedfp"));
  EXPECT_EQ(logits_of(testdata("models/llama")), logits_of(folder / "out"));
}

TEST(QuantizeModelTest, NestedWeightsAreRejectedInTheTypeOfTheFile) {
  const TestFolder folder;
  const QuantizeJob job = job_for("llama", folder / "out", "nestedfp");
  EditableSource source(*open_checkpoint_weights(job.model_dir));
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  TensorInfo info = *source.find(name);
  ASSERT_EQ(info.dtype, DType::kF16);
  info.dtype = DType::kBf16;
  // 2^-30 in bf16, which f16 does not hold.
  const std::vector<uint16_t> small(info.num_bytes / sizeof(uint16_t), 0x3080);
  const auto bytes = std::as_bytes(std::span(small));
  source.set(info, {bytes.begin(), bytes.end()});
  ThreadPool pool(1);
  ExecContext context{pool};
  std::string message;
  try {
    quantize_model(context, HfConfig::load(job.model_dir), source, job, {});
  } catch (const UnsupportedError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("expected values that f16 holds, got bf16 9.31323e-10 at [0, 0]"),
            std::string::npos)
      << message;
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
