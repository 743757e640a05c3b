// The shipped model against transformers: greedy continuations and negative log likelihoods.
#include <cmath>
#include <span>

#include <gtest/gtest.h>

#include "halley/base/env.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

std::filesystem::path demo_dir() {
  return std::filesystem::path(HALLEY_SOURCE_DIR) / "models/demo-21m";
}

class DemoModel : public testing::Test {
 protected:
  std::unique_ptr<CausalLm> load(bool is_rounded) {
    const HfConfig config = HfConfig::load(demo_dir());
    const auto source = open_checkpoint_weights(demo_dir());
    DecoderConfig decoder = read_decoder_config(config, *source, 0);
    if (is_rounded) round_frequencies_to_f16(decoder);
    return load_decoder(context_, config, decoder, *source, {}).model;
  }

  ThreadPool pool_{num_usable_cores()};
  ExecContext context_{pool_};
  Json golden_ = read_test_json(demo_dir() / "golden.json");
};

TEST_F(DemoModel, ContinuesEveryPromptAsTheReference) {
  const auto model = load(false);
  for (const Json& prompt : golden_.at("greedy")) {
    const TestCache cache(model->shape(), model->shape().kv_dtype_default, 1, 128);
    const auto expected = prompt.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(decode_greedily(*model, cache, prompt.at("prompt_ids").get<std::vector<int32_t>>(),
                              expected.size()),
              expected)
        << prompt.at("prompt");
  }
}

TEST_F(DemoModel, LastLogitsOfEveryPromptAreTheReferences) {
  const auto model = load(true);
  const auto V = static_cast<size_t>(model->shape().vocab_size);
  for (const Json& prompt : golden_.at("greedy")) {
    const TestCache cache(model->shape(), KvDType::kF32, 1, 128);
    const auto expected = prompt.at("last_logits").get<std::vector<float>>();
    const std::vector<float> logits = forward_all_rows(
        *model, cache,
        {{.sequence = 0, .ids = prompt.at("prompt_ids").get<std::vector<int32_t>>()}});
    ASSERT_EQ(expected.size(), V);
    for (size_t i = 0; i < V; ++i) {
      ASSERT_NEAR(logits[logits.size() - V + i], expected[i], 1e-4f) << prompt.at("prompt");
    }
  }
}

/// Sum over tokens 2..n of -log p(token), in nats.
double negative_log_likelihood(const std::vector<float>& logits, const std::vector<int32_t>& ids) {
  const size_t V = logits.size() / ids.size();
  double total = 0;
  for (size_t row = 0; row + 1 < ids.size(); ++row) {
    const std::span<const float> values(logits.data() + row * V, V);
    double sum = 0;  // logits of this model are far below 700: no shift is needed in f64
    for (const float value : values) sum += std::exp(static_cast<double>(value));
    total += std::log(sum) - static_cast<double>(values[static_cast<size_t>(ids[row + 1])]);
  }
  return total;
}

TEST_F(DemoModel, FirstWindowsHaveTheReferencesLikelihood) {
  // Sums of 1023 logarithms of a few nats: the reference's own f32 arithmetic is good to 1e-2.
  constexpr double kTolerance = 0.02;
  // With keys and values rounded to f16.
  constexpr double kToleranceF16 = 0.3;
  const Json windows = read_test_json(testdata("demo_windows.json"));
  for (const char* text : {"wikitext2_test", "heldout"}) {
    const auto ids = windows.at(text).at("ids").get<std::vector<int32_t>>();
    const auto expected = windows.at(text).at("nll").get<double>();
    const auto model = load(std::string_view(text) == "wikitext2_test");
    for (const KvDType dtype : {KvDType::kF32, KvDType::kF16}) {
      const TestCache cache(model->shape(), dtype, 1, 1024);
      const double nll = negative_log_likelihood(
          forward_all_rows(*model, cache, {{.sequence = 0, .ids = ids}}), ids);
      EXPECT_NEAR(nll, expected, dtype == KvDType::kF32 ? kTolerance : kToleranceF16) << text;
    }
  }
}

}  // namespace
}  // namespace halley
