// Models divided among GPUs against the same models on one: every family, every format, both ways
// of running steps. Where there are too few GPUs, ranks share one.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/base/step_runner.h"
#include "halley/models/parallel/load_ranked_model.h"
#include "halley/quant/all/builtin_quant_configs.h"

namespace halley {
namespace {

using std::chrono_literals::operator""s;

// In standard deviations of the logits: each rank rounds its part of a sum to the activations' type
// before they are added, and quantizes its inputs by their own largest magnitude.
double deviation_max(bool is_rounded, DType activation_dtype) {
  if (is_rounded) return 0.3;
  return activation_dtype == DType::kF16 ? 1e-2 : 6e-2;
}

// In units of the largest logit, from the reference's: about twice what one GPU may have.
double error_max(bool is_rounded, DType activation_dtype) {
  if (is_rounded) return 0.1;
  return activation_dtype == DType::kF16 ? 6e-3 : 6e-2;
}

constexpr size_t kNumTokens = 12;  // decoded
constexpr int64_t kNumTokensMax = 64;

int num_gpus() { return static_cast<int>(list_cuda_devices().size()); }

std::vector<int32_t> prompt_of(int64_t vocab_size, int32_t seed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 24; ++i) {
    ids.push_back(static_cast<int32_t>((37 * i + 11 * seed) % vocab_size));
  }
  return ids;
}

TestCache make_cache(CausalLm& model, int64_t num_sequences) {
  model.prepare({.num_sequences = num_sequences,
                 .num_rows = 96,
                 .num_logit_rows = 96,
                 .max_length = kNumTokensMax,
                 .kv_dtype = model.shape().kv_dtype_default,
                 .page_tokens = 16});
  return {model, model.shape().kv_dtype_default, num_sequences, kNumTokensMax,
          [](std::byte*, size_t) {}};
}

/// Logits of a prompt's rows in two chunks, and of the tokens `forced` behind it, one by one.
std::vector<float> run(CausalLm& model, const std::vector<int32_t>& forced) {
  const TestCache cache = make_cache(model, 2);
  const std::vector<int32_t> ids = prompt_of(model.shape().vocab_size, 1);
  const std::vector<int32_t> head(ids.begin(), ids.begin() + 9), tail(ids.begin() + 9, ids.end());
  std::vector<float> all;
  const auto forward = [&](int64_t num_past, const std::vector<int32_t>& chunk) {
    const auto logits = forward_all_rows(
        model, cache, {{.sequence = 1, .num_past_tokens = num_past, .ids = chunk}});
    all.insert(all.end(), logits.begin(), logits.end());
  };
  forward(0, head);
  forward(9, tail);
  auto num_past = static_cast<int64_t>(ids.size());
  for (const int32_t id : forced) forward(num_past++, {id});
  return all;
}

double deviation(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - b[i]);
    if (!(difference <= largest)) largest = difference;  // a NaN too
    sum += b[i];
    squares += double{b[i]} * b[i];
  }
  const double mean = sum / static_cast<double>(b.size());
  return largest / std::sqrt(squares / static_cast<double>(b.size()) - mean * mean);
}

/// Greedy tokens of several sequences by the step runner, two steps in flight.
std::vector<std::vector<int32_t>> run_steps(CausalLm& model) {
  constexpr size_t kNumSequences = 3;
  const TestCache cache = make_cache(model, kNumSequences);
  StepRunner& runner = *model.step_runner();
  std::vector<std::vector<int32_t>> chosen(kNumSequences);
  const auto take = [&] {
    const StepResult& result = runner.wait();
    for (size_t i = 0; i < kNumSequences; ++i) {
      EXPECT_EQ(result.chosen[i].status, SampleStatus::kChosen);
      chosen[i].push_back(result.chosen[i].token.token_id);
    }
  };
  for (size_t step = 0; step < kNumTokens; ++step) {
    std::vector<int32_t> ids;
    std::vector<BatchSequence> sequences;
    std::vector<RowChoice> choices;
    for (size_t i = 0; i < kNumSequences; ++i) {
      const auto slot = static_cast<int32_t>(i);
      const std::vector<int32_t> prompt = prompt_of(model.shape().vocab_size, slot + 1);
      if (step == 0) {
        runner.start_slot(slot, {.params = {.temperature = 0}, .seed = i}, prompt, {});
        ids.insert(ids.end(), prompt.begin(), prompt.end());
      } else {
        ids.push_back(slot_token(slot));
      }
      const auto num_rows = static_cast<int64_t>(step == 0 ? prompt.size() : 1);
      const auto num_past = static_cast<int64_t>(step == 0 ? 0 : prompt.size() + step - 1);
      sequences.push_back({.first_row = static_cast<int64_t>(ids.size()) - num_rows,
                           .num_new_tokens = num_rows,
                           .num_past_tokens = num_past,
                           .page_table = cache.page_table(i)});
      choices.push_back({.row = static_cast<int32_t>(ids.size()) - 1, .slot = slot});
    }
    runner.launch(
        {.batch = {.token_ids = ids, .sequences = sequences, .logit_rows = {}}, .choices = choices},
        cache.view());
    if (step > 0) take();
  }
  take();
  return chosen;
}

/// Fraction of tokens before which all were equal.
double equal_share(const std::vector<std::vector<int32_t>>& a,
                   const std::vector<std::vector<int32_t>>& b) {
  size_t num_equal = 0, total = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    num_equal += static_cast<size_t>(std::mismatch(a[i].begin(), a[i].end(), b[i].begin()).first -
                                     a[i].begin());
    total += a[i].size();
  }
  return static_cast<double>(num_equal) / static_cast<double>(total);
}

class GpuRankTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { load_kernels_eagerly(); }

  LoadedDecoder load(const HfConfig& config, const TensorSource& source, int num_ranks,
                     const QuantConfig& quant) {
    LoadOptions options;
    options.share.has_whole_experts = has_whole_experts_ && num_ranks > 1;
    options.device = "cuda";
    options.quant = quant;
    if (num_ranks == 1) return load_model(context_, config, source, {}, options);
    const int ranks_per_gpu = (num_ranks + num_gpus() - 1) / num_gpus();
    return load_ranked_model(context_,
                             {.num_ranks = num_ranks,
                              .num_stages = num_stages_,
                              .timeout = 20s,
                              .ranks_per_gpu = ranks_per_gpu},
                             config, source, {}, options);
  }

  void expect_as_one(const HfConfig& config, const TensorSource& source, const QuantConfig& quant,
                     const std::vector<int>& nums_ranks) {
    const LoadedDecoder one = load(config, source, 1, quant);
    const std::vector<int32_t> forced = prompt_of(one.model->shape().vocab_size, 2);
    bool is_rounded = false;
    for (const ModelPart& part : one.plan.parts) {
      for (const LinearPlan& linear : part.plans) {
        is_rounded |= linear.weight.activation != ActivationQuant::kNone;
      }
    }
    const std::vector<float> whole = run(*one.model, forced);
    const auto whole_ids = run_steps(*one.model);
    for (const int num_ranks : nums_ranks) {
      SCOPED_TRACE(str(num_ranks, " ranks"));
      const LoadedDecoder divided = load(config, source, num_ranks, quant);
      const double logits = deviation(run(*divided.model, forced), whole);
      const double tokens = equal_share(run_steps(*divided.model), whole_ids);
      std::printf("%d ranks: logits %.2g, equal tokens %.2f\n", num_ranks, logits, tokens);
      EXPECT_LE(logits, deviation_max(is_rounded, one.plan.activation_dtype));
      // Weights at random have no preference: a token may be another one, but few are.
      EXPECT_GE(tokens, is_rounded ? 0.3 : 0.6);
    }
  }

  /// The logits that NumPy has computed.
  static void expect_reference(const LoadedDecoder& loaded, const std::filesystem::path& dir) {
    CausalLm& model = *loaded.model;
    const Json expected = read_test_json(dir / "expected.json");
    const auto tokens = expected.at("tokens").get<std::vector<int32_t>>();
    const TestCache cache = make_cache(model, 1);
    const auto logits = forward_all_rows(model, cache, {{.sequence = 0, .ids = tokens}});
    const bool is_rounded =
        expected.at("activation") != "none" || bits_of(model.shape().kv_dtype_default) <= 8;
    EXPECT_LE(relative_error(expected.at("logits"), logits),
              error_max(is_rounded, loaded.plan.activation_dtype));
  }

  bool has_whole_experts_ = false;
  int num_stages_ = 1;
  ThreadPool pool_{4};
  ExecContext context_{.pool = pool_};
};

/// Layers of 128 inputs, all of which share a scale.
bool is_one_block(const std::string& name) {
  return name.find("/fp8_block") != std::string::npos || name.find("/fmpq_") != std::string::npos;
}

/// One norm takes the queries of all heads, which would be in several ranks.
bool norms_all_heads(const HfConfig& config) {
  return read_decoder_config(config).qk_norm_extent == QkNormExtent::kAllHeads;
}

class GpuRankCheckpoints : public GpuRankTest {};

TEST_P(GpuRankCheckpoints, AreAsOnOneGpu) {
  const std::filesystem::path dir = testdata(GetParam());
  const HfConfig config = HfConfig::load(dir);
  const auto source = open_checkpoint_weights(dir);
  const QuantConfig quant = read_quant_config(config, dir);
  if (is_one_block(GetParam())) {
    EXPECT_THROW(load(config, *source, 2, quant), UnsupportedError);
    return;
  }
  if (norms_all_heads(config)) {
    EXPECT_THROW(load(config, *source, 2, quant), UnsupportedError);
    return;
  }
  // Layers of the quantized ones have blocks for two.
  const bool is_quantized = GetParam().starts_with("quantized/");
  expect_as_one(config, *source, quant, is_quantized ? std::vector{2} : std::vector{2, 4});
  if (is_quantized) expect_reference(load(config, *source, 2, quant), dir);
}

std::vector<std::string> names_in(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(testdata(folder))) {
      if (entry.is_directory()) names.push_back(str(folder, "/", entry.path().filename().string()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, GpuRankCheckpoints,
                         testing::ValuesIn(names_in({"models", "quantized"})),
                         [](const auto& tested) {
                           return tested.param.substr(tested.param.find('/') + 1);
                         });

class GpuStages : public GpuRankTest {};

/// Hidden states pass between stages as they are.
TEST_P(GpuStages, AreAsOnOneGpu) {
  const std::filesystem::path dir = testdata(GetParam());
  const HfConfig config = HfConfig::load(dir);
  const auto source = open_checkpoint_weights(dir);
  const QuantConfig quant = read_quant_config(config, dir);
  const LoadedDecoder one = load(config, *source, 1, quant);
  const std::vector<int32_t> forced = prompt_of(one.model->shape().vocab_size, 2);
  const std::vector<float> whole = run(*one.model, forced);
  num_stages_ = 2;
  for (const int num_ranks : {2, 4}) {
    if (num_ranks == 4 && norms_all_heads(config)) continue;
    SCOPED_TRACE(str(num_ranks, " ranks"));
    const LoadedDecoder divided = load(config, *source, num_ranks, quant);
    const double difference = deviation(run(*divided.model, forced), whole);
    std::printf("2 stages of %d: logits %.2g\n", num_ranks / 2, difference);
    EXPECT_LE(difference, num_ranks == 2 ? 1e-4 : deviation_max(false, one.plan.activation_dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuStages, testing::ValuesIn(names_in({"models"})),
                         [](const auto& tested) {
                           return tested.param.substr(tested.param.find('/') + 1);
                         });

class GpuRankMixtures : public GpuRankTest {};

TEST_P(GpuRankMixtures, WithWholeExpertsAreAsOnOneGpu) {
  const std::filesystem::path dir = testdata(GetParam());
  const HfConfig config = HfConfig::load(dir);
  has_whole_experts_ = true;
  expect_as_one(config, *open_checkpoint_weights(dir), read_quant_config(config, dir), {2, 4});
}

INSTANTIATE_TEST_SUITE_P(All, GpuRankMixtures,
                         testing::Values("models/mixtral", "models/qwen3_moe"),
                         [](const auto& tested) {
                           return tested.param.substr(tested.param.find('/') + 1);
                         });

constexpr const char* kShape = R"({"model_type": "llama", "hidden_size": 1024,
  "num_hidden_layers": 2, "intermediate_size": 2816, "num_attention_heads": 16,
  "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 1000, "hidden_act": "silu",
  "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "torch_dtype": "float16"})";

class GpuRankFormats : public GpuRankTest {};

TEST_P(GpuRankFormats, AreAsOnOneGpu) {
  std::string text = kShape;
  text.insert(text.size() - 1,
              str(", \"quantization_config\": ", builtin_quant_config(GetParam())));
  const HfConfig config = HfConfig::parse(text, "config.json");
  const QuantConfig quant = read_quant_config(config, {});
  const auto source =
      make_dummy_weights(list_quantized_tensors(read_decoder_config(config), quant));
  expect_as_one(config, *source, quant, {2, 4});
}

INSTANTIATE_TEST_SUITE_P(All, GpuRankFormats, testing::ValuesIn(builtin_quant_config_names()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace halley
