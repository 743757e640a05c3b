#include "halley/quant/methods/testing/quantize_run.h"

#include <algorithm>
#include <cmath>

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

std::vector<float> logits_of(const HfConfig& config, const TensorSource& source,
                             const LoadOptions& options, KvDType kv_dtype, Precision precision) {
  ThreadPool pool(2);
  ExecContext context{.pool = pool, .precision = precision};
  const LoadedDecoder loaded = load_model(context, config, source, {}, options);
  const TestCache cache(loaded.model->shape(), kv_dtype, 1, 64);
  return forward_all_rows(*loaded.model, cache, {{.ids = random_tokens(1, 48).ids}});
}

}  // namespace

TestFolder::TestFolder() {
  std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(name.begin(), name.end(), '/', '_');
  path_ = fs::temp_directory_path() / str("halley_quantize_", ::getpid(), "_", name);
  fs::remove_all(path_);
  fs::create_directories(path_);
}

TestFolder::~TestFolder() { fs::remove_all(path_); }

QuantizeJob job_for(const std::string& family, const fs::path& out, const std::string& method,
                    const RecipeChanges& changes) {
  return {.model_dir = testdata("models") / family,
          .out_dir = out,
          .recipe = make_recipe(method, changes),
          .overrides = {},
          .tokens = changes.has_calibration ? random_tokens(6, 40) : CalibrationTokens(),
          .fingerprint = method};
}

QuantizeSummary quantize(const QuantizeJob& job, int num_threads,
                         const std::function<void(const QuantizeProgress&)>& on_progress) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  const HfConfig config = HfConfig::load(job.model_dir);
  const auto source = open_checkpoint_weights(job.model_dir);
  return quantize_model(context, config, *source, job, on_progress);
}

std::vector<float> logits_of(const fs::path& dir, KvDType kv_dtype, Precision precision) {
  const HfConfig config = HfConfig::load(dir);
  LoadOptions options;
  options.quant = read_quant_config(config, dir);
  return logits_of(config, *open_checkpoint_weights(dir), options, kv_dtype, precision);
}

std::vector<float> logits_of(const HfConfig& config, const TensorSource& source) {
  return logits_of(config, source, {}, KvDType::kF32, Precision::kFull);
}

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

std::string message_of(const QuantizeJob& job) {
  try {
    quantize(job);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace halley
