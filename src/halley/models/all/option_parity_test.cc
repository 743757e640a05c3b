// Configurations that the checkpoints of parity_test.cc do not cover, each against transformers:
// rotary scalings, partial rotary embeddings, windows, biases, mixed expert layers, activations,
// the older syntax of config.json. Weights come from a hash of the tensors' names on both sides, in
// f32; see tools/make_model_goldens.py.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

// f32 accumulation in another order over at most 128 terms and 4 layers, and 6 digits in the files.
constexpr double kLogitsTolerance = 2e-5;
constexpr double kLogsumexpTolerance = 1e-4;

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testdata("model_options"))) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class OptionParity : public testing::TestWithParam<std::string> {};

TEST_P(OptionParity, LogitsAndGreedyTokensAreTheReferences) {
  const auto path = testdata("model_options/" + GetParam() + ".json");
  const Json json = read_test_json(path);
  const HfConfig config = HfConfig::parse(json.at("config").dump(), path.string());
  const Golden golden = read_golden(json);
  const auto source = make_hash_weights(list_dense_tensors(read_decoder_config(config)));
  ThreadPool pool(1);
  ExecContext context{pool};
  LoadOptions options;
  options.max_length = json.at("max_length").get<int64_t>();
  const auto model = load_model(context, config, *source, {}, options).model;
  const TestCache cache(model->shape(), KvDType::kF32, 1, 128);

  const auto logits = forward_all_rows(
      *model, cache, {{.sequence = 0, .num_past_tokens = 0, .ids = golden.input_ids}});
  const Deviation deviation = compare(golden, logits, model->shape().vocab_size);
  EXPECT_LE(deviation.logits, kLogitsTolerance);
  EXPECT_LE(deviation.logsumexp, kLogsumexpTolerance);
  EXPECT_EQ(deviation.num_wrong_argmax, 0);
  EXPECT_EQ(decode_greedily(*model, cache, golden.input_ids, golden.greedy_ids.size()),
            golden.greedy_ids);
}

INSTANTIATE_TEST_SUITE_P(Options, OptionParity, testing::ValuesIn(option_names()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace halley
