// Models divided among ranks against the same models whole: every family and every format.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/parallel/load_ranked_model.h"
#include "halley/quant/all/builtin_quant_configs.h"

namespace halley {
namespace {

using std::chrono_literals::operator""s;

// Sums in f32 in another order.
constexpr double kDeviationMax = 1e-4;
// A number between two quantized values may be rounded to the other one: of e4m3, 1/16 of it away.
constexpr double kDeviationMaxOfRounded = 2e-2;
constexpr size_t kNumTokens = 8;  // decoded

struct Outcome {
  std::vector<float> logits;  // of a prompt's rows, cut into two chunks
  std::vector<int32_t> ids;   // decoded behind it
  bool is_rounded = false;    // some layers quantize their inputs
};

std::vector<int32_t> prompt_of(const ModelShape& shape) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 24; ++i) {
    ids.push_back(static_cast<int32_t>((37 * i + 11) % shape.vocab_size));
  }
  return ids;
}

Outcome run(CausalLm& model) {
  const auto fill = [](std::byte* data, size_t num_bytes) { std::memset(data, 0xFF, num_bytes); };
  const TestCache cache(model, KvDType::kF32, 2, 64, fill);
  const std::vector<int32_t> ids = prompt_of(model.shape());
  const std::vector<int32_t> head(ids.begin(), ids.begin() + 9), tail(ids.begin() + 9, ids.end());
  Outcome outcome;
  outcome.logits = forward_all_rows(model, cache, {{.sequence = 1, .ids = head}});
  const auto more =
      forward_all_rows(model, cache, {{.sequence = 1, .num_past_tokens = 9, .ids = tail}});
  outcome.logits.insert(outcome.logits.end(), more.begin(), more.end());
  outcome.ids = decode_greedily(model, cache, ids, kNumTokens);
  return outcome;
}

/// In standard deviations of the logits.
double deviation(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(double{a[i]} - b[i]));
    sum += b[i];
    squares += double{b[i]} * b[i];
  }
  const double mean = sum / static_cast<double>(b.size());
  return largest / std::sqrt(squares / static_cast<double>(b.size()) - mean * mean);
}

/// Layers of 128 inputs, all of which share a scale.
bool is_one_block(const std::string& name) {
  return name.find("/fp8_block") != std::string::npos || name.find("/fmpq_") != std::string::npos;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  return info.param.substr(info.param.find('/') + 1);
}

std::vector<std::string> names_in(const char* folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(testdata(folder))) {
    if (entry.is_directory()) names.push_back(str(folder, "/", entry.path().filename().string()));
  }
  return names;
}

/// A model on the CPU, whole or divided.
class TestModel {
 public:
  TestModel(const HfConfig& config, const TensorSource& source, const QuantConfig& quant)
      : config_(config), source_(source) {
    options_.quant = quant;
    // The faster kernels for bf16 round their inputs.
    const DecoderConfig decoder = read_decoder_config(config, source, 0);
    if (decoder.dtype == DType::kBf16) options_.kernels.forced = "gemm_bf16_hwy";
  }

  /// Ranks have whole experts from now on.
  void use_whole_experts() { options_.share.has_whole_experts = true; }

  void expect_as_whole(int num_ranks, int num_stages = 1,
                       Precision precision = Precision::kFull) const {
    SCOPED_TRACE(str(num_ranks, " ranks in ", num_stages, " stages"));
    const Outcome whole = outcome_of(1, 1, precision),
                  divided = outcome_of(num_ranks, num_stages, precision);
    const bool is_rounded = whole.is_rounded || precision == Precision::kLow;
    EXPECT_LE(deviation(divided.logits, whole.logits),
              is_rounded ? kDeviationMaxOfRounded : kDeviationMax);
    EXPECT_EQ(divided.ids, whole.ids);
  }

  Outcome outcome_of(int num_ranks, int num_stages = 1,
                     Precision precision = Precision::kFull) const {
    ThreadPool pool(1);
    ExecContext context{.pool = pool};
    const LoadedDecoder loaded =
        num_ranks == 1
            ? load_model(context, config_, source_, {}, options_)
            : load_ranked_model(context,
                                {.num_ranks = num_ranks, .num_stages = num_stages, .timeout = 20s},
                                config_, source_, {}, options_);
    context.precision = precision;
    Outcome outcome = run(*loaded.model);
    for (const ModelPart& part : loaded.plan.parts) {
      for (const LinearPlan& linear : part.plans) {
        outcome.is_rounded |= linear.weight.activation != ActivationQuant::kNone;
      }
    }
    return outcome;
  }

 private:
  const HfConfig& config_;
  const TensorSource& source_;
  LoadOptions options_;
};

class RankedCheckpoints : public testing::TestWithParam<std::string> {
 protected:
  const std::filesystem::path dir_ = testdata(GetParam());
  const HfConfig config_ = HfConfig::load(dir_);
  const QuantConfig quant_ = read_quant_config(config_, dir_);
  const std::unique_ptr<TensorSource> source_ = open_checkpoint_weights(dir_);
  const TestModel model_{config_, *source_, quant_};
};

class RankedFamilies : public RankedCheckpoints {
 protected:
  /// One norm takes the queries of all heads, which would be in several ranks.
  bool is_rejected() const {
    return read_decoder_config(config_).qk_norm_extent == QkNormExtent::kAllHeads;
  }
};
class RankedFormats : public RankedCheckpoints {};

TEST_P(RankedFamilies, OfTwoAndFourRanksAreAsWhole) {
  if (is_rejected()) {
    EXPECT_THROW(model_.outcome_of(2), UnsupportedError);
    return;
  }
  for (const int num_ranks : {2, 4}) model_.expect_as_whole(num_ranks);
}

TEST_P(RankedFamilies, OfTwoStagesAreAsWhole) {
  model_.expect_as_whole(2, 2);
  if (!is_rejected()) model_.expect_as_whole(4, 2);
}

TEST_P(RankedFormats, OfTwoRanksAreAsWhole) {
  if (is_one_block(GetParam())) {
    EXPECT_THROW(model_.outcome_of(2), UnsupportedError);
  } else {
    model_.expect_as_whole(2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RankedFamilies, testing::ValuesIn(names_in("models")), name_of);
INSTANTIATE_TEST_SUITE_P(All, RankedFormats, testing::ValuesIn(names_in("quantized")), name_of);

constexpr const char* kShape = R"({"model_type": "llama", "hidden_size": 512,
  "num_hidden_layers": 2, "intermediate_size": 1152, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1000, "hidden_act": "silu",
  "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "torch_dtype": "float16"})";

/// Formats whose blocks of activations are as large as the golden checkpoints' layers.
TEST(RankedModel, OfEachBuiltinFormatIsAsWhole) {
  for (const std::string& name : builtin_quant_config_names()) {
    SCOPED_TRACE(name);
    std::string text = kShape;
    text.insert(text.size() - 1, str(", \"quantization_config\": ", builtin_quant_config(name)));
    const HfConfig config = HfConfig::parse(text, "config.json");
    const QuantConfig quant = read_quant_config(config, {});
    const auto source =
        make_dummy_weights(list_quantized_tensors(read_decoder_config(config), quant));
    const TestModel model(config, *source, quant);
    for (const int num_ranks : {2, 4}) model.expect_as_whole(num_ranks);
    if (name == "nestedfp") model.expect_as_whole(2, 1, Precision::kLow);
  }
}

/// Experts of one block of 128 inputs, and 6 for 4 ranks.
constexpr const char* kMixture = R"({"model_type": "mixtral", "hidden_size": 512,
  "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 8,
  "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1000, "hidden_act": "silu",
  "num_local_experts": 6, "num_experts_per_tok": 3,
  "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "torch_dtype": "float16"})";

class RankedExperts : public testing::TestWithParam<std::string> {};

TEST_P(RankedExperts, ThatAreWholeAreAsInOneRank) {
  const std::filesystem::path dir = testdata(GetParam());
  const HfConfig config = HfConfig::load(dir);
  const auto source = open_checkpoint_weights(dir);
  TestModel model(config, *source, read_quant_config(config, dir));
  model.use_whole_experts();
  for (const int num_ranks : {2, 4}) model.expect_as_whole(num_ranks);
  model.expect_as_whole(4, 2);
}

INSTANTIATE_TEST_SUITE_P(All, RankedExperts,
                         testing::Values("models/mixtral", "models/qwen3_moe", "models/granitemoe"),
                         name_of);

/// Groups in act-order, for dummy weights: input k is in group (5 k mod K) / kGroup.
class ActOrderSource final : public TensorSource {
 public:
  explicit ActOrderSource(const TensorSource& source) : source_(source) {
    for (const TensorInfo& info : source.tensors()) {
      if (!info.name.ends_with(".g_idx")) continue;
      std::vector<int32_t>& groups = groups_[info.name];
      const auto K = static_cast<int32_t>(info.shape[0]);
      for (int32_t k = 0; k < K; ++k) groups.push_back(5 * k % K / kGroup);
    }
  }
  std::string description() const override { return source_.description(); }
  const std::vector<TensorInfo>& tensors() const override { return source_.tensors(); }
  const TensorInfo* find(std::string_view name) const override { return source_.find(name); }
  TensorView view(const TensorInfo& info) const override {
    TensorView view = source_.view(info);
    const auto it = groups_.find(info.name);
    if (it != groups_.end()) view.data = reinterpret_cast<const std::byte*>(it->second.data());
    return view;
  }

 private:
  static constexpr int32_t kGroup = 32;
  const TensorSource& source_;
  std::map<std::string, std::vector<int32_t>> groups_;
};

void expect_mixture_as_whole(const std::string& format) {
  SCOPED_TRACE(format);
  std::string text = kMixture;
  text.insert(text.size() - 1, ", \"quantization_config\": " + format);
  const HfConfig config = HfConfig::parse(text, "config.json");
  const QuantConfig quant = read_quant_config(config, {});
  const auto weights =
      make_dummy_weights(list_quantized_tensors(read_decoder_config(config), quant));
  const ActOrderSource source(*weights);
  TestModel model(config, source, quant);
  model.use_whole_experts();
  for (const int num_ranks : {2, 4}) model.expect_as_whole(num_ranks);
  if (format.find("nestedfp") == std::string::npos) return;
  model.expect_as_whole(2, 1, Precision::kLow);
}

TEST(RankedModel, OfWholeExpertsInEachFormatIsAsWhole) {
  for (const std::string& name : builtin_quant_config_names()) {
    if (name != "nestedfp") expect_mixture_as_whole(builtin_quant_config(name));
  }
  // Routers are in full precision.
  expect_mixture_as_whole(R"({"quant_method": "nestedfp", "version": 1, "exceptions": ["lm_head",
      "model.layers.0.block_sparse_moe.gate", "model.layers.1.block_sparse_moe.gate"]})");
}

TEST(RankedModel, OfWholeExpertsInActOrderIsAsWhole) {
  expect_mixture_as_whole(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": false,
                              "desc_act": true, "lm_head": false})");
}

/// The first step tells of the cache's layers; here it is one that no rank runs.
TEST(RankedModel, GoesOnAfterAStepThatWasRejected) {
  const std::filesystem::path dir = testdata("models/llama");
  const HfConfig config = HfConfig::load(dir);
  const auto source = open_checkpoint_weights(dir);
  for (const int num_stages : {1, 2}) {
    SCOPED_TRACE(num_stages);
    ThreadPool pool(1);
    ExecContext context{.pool = pool};
    const LoadedDecoder loaded =
        load_ranked_model(context, {.num_ranks = 2, .num_stages = num_stages, .timeout = 20s},
                          config, *source, {}, {});
    CausalLm& model = *loaded.model;
    {
      const TestCache cache(model, KvDType::kF32, 1, 64, [](std::byte*, size_t) {});
      const int32_t wrong_id = static_cast<int32_t>(model.shape().vocab_size);
      EXPECT_THROW(forward_all_rows(model, cache, {{.sequence = 0, .ids = {wrong_id}}}),
                   InputError);
      const auto logits = forward_all_rows(model, cache, {{.sequence = 0, .ids = {1, 2, 3}}});
      EXPECT_TRUE(std::isfinite(logits.back()));
    }
    EXPECT_EQ(run(model).ids.size(), kNumTokens);
  }
}

/// 4 heads of keys and values for 8 ranks; 9 blocks of 128 inputs among 4.
TEST(RankedModel, SaysWhichNumbersOfRanksFit) {
  const HfConfig config = HfConfig::parse(kShape, "config.json");
  const auto source = make_dummy_weights(list_dense_tensors(read_decoder_config(config)));
  const QuantConfig quant = read_quant_config(config, {});
  const TestModel model(config, *source, quant);
  model.expect_as_whole(8);
  EXPECT_THROW(model.outcome_of(3, 3), UnsupportedError);  // 2 layers
  try {
    model.outcome_of(3);
    FAIL() << "expected an error";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("1, 2, 4, 8")) << error.what();
  }
}

}  // namespace
}  // namespace halley
