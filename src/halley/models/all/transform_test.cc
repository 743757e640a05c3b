// Changes of weights that keep a model's function (models/transform), on the tiny checkpoints of
// all families and on all configurations of testdata/model_options: the logits stay.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/safetensors/testing/overlay_source.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/transform/rotated_source.h"
#include "halley/models/transform/scale_points.h"
#include "halley/quant/base/dense_tensor.h"

namespace halley {
namespace {

// Largest difference in standard deviations of a row of logits: f32 rounding of weights and
// accumulators.
constexpr double kTolerance = 1e-4;

/// All but granitemoe, whose experts are in one tensor, which these changes reject.
std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const char* folder : {"models", "model_options"}) {
    for (const auto& entry : std::filesystem::directory_iterator(testdata(folder))) {
      const std::string name = entry.path().stem().string();
      if (!name.starts_with("granitemoe")) names.push_back(std::string(folder) + "/" + name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

HfConfig read_option_config(const std::string& name, const std::function<void(Json&)>& edit = {}) {
  const auto path = testdata(name + ".json");
  Json config = read_test_json(path).at("config");
  if (edit) edit(config);
  return HfConfig::parse(config.dump(), path.string());
}

/// A model as it is in testdata.
struct TestedModel {
  explicit TestedModel(const std::string& name, const std::function<void(Json&)>& edit = {})
      : is_option(name.starts_with("model_options")),
        hf(is_option ? read_option_config(name, edit) : HfConfig::load(testdata(name))),
        source(is_option ? make_hash_weights(list_dense_tensors(read_decoder_config(hf)))
                         : open_checkpoint_weights(testdata(name))),
        config(read_decoder_config(hf, *source, 0)) {}

  bool is_option;
  HfConfig hf;
  std::unique_ptr<TensorSource> source;
  DecoderConfig config;
};

/// Logits [30, V] of 30 fixed tokens.
std::vector<float> run(const HfConfig& hf, const DecoderConfig& config,
                       const TensorSource& source) {
  ThreadPool pool(1);
  ExecContext context{pool};
  LoadOptions options;
  options.has_self_check = false;
  const auto model = load_decoder(context, hf, config, source, {}, options).model;
  const TestCache cache(model->shape(), KvDType::kF32, 1, 32);
  std::vector<int32_t> ids(30);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * 37 + 11) % static_cast<size_t>(config.vocab_size));
  }
  return forward_all_rows(*model, cache, {{.sequence = 0, .ids = ids}});
}

double deviation_of(std::span<const float> logits, std::span<const float> reference, int64_t V) {
  EXPECT_EQ(logits.size(), reference.size());
  double worst = 0;
  for (size_t begin = 0; begin < logits.size(); begin += static_cast<size_t>(V)) {
    double sum = 0, sum_squares = 0, largest = 0;
    for (size_t i = begin; i < begin + static_cast<size_t>(V); ++i) {
      const double value = reference[i];
      sum += value;
      sum_squares += value * value;
      const double difference = std::abs(value - static_cast<double>(logits[i]));
      largest = difference <= largest ? largest : difference;  // NaN stays
    }
    const double mean = sum / static_cast<double>(V);
    const double row = largest / std::sqrt(sum_squares / static_cast<double>(V) - mean * mean);
    worst = row <= worst ? worst : row;
  }
  return worst;
}

class Transform : public testing::TestWithParam<std::string> {
 protected:
  /// change(layer, index) changes a layer's tensors.
  using Change = std::function<void(TensorStore&, int64_t)>;

  /// The logits after every layer's tensors, read as f32, were changed.
  std::vector<float> run_changed(const Change& change) {
    TensorStore changed;
    for (int64_t i = 0; i < model_.config.num_layers; ++i) {
      TensorStore layer = read_layer_tensors(model_.config, i, *model_.source);
      change(layer, i);
      for (const TensorInfo& info : layer.tensors()) {
        changed.set_f32(info.name, info.shape, layer.f32(info.name));
      }
    }
    return run(model_.hf, model_.config, OverlaySource(changed, *model_.source));
  }

  std::vector<float> run_unchanged() {
    return run_changed([](TensorStore&, int64_t) {});
  }

  /// One factor for each group.
  std::vector<float> random_factors(size_t num_factors, std::span<const int32_t> groups,
                                    bool is_power) {
    std::normal_distribution<float> normal;
    std::vector<float> factors(num_factors);
    for (float& factor : factors) {
      factor = std::exp2(is_power ? std::round(2 * normal(random_)) : normal(random_));
    }
    const std::vector<float> of_groups = factors;
    for (size_t k = 0; k < groups.size(); ++k) {
      factors[k] = of_groups[static_cast<size_t>(groups[k])];
    }
    return factors;
  }

  std::vector<float> random_key_factors(int64_t layer_index, bool is_power);
  std::vector<int32_t> random_order(const ScalePoint& point);

  TestedModel model_{GetParam()};
  std::mt19937 random_{5};
};

std::vector<float> Transform::random_key_factors(int64_t layer_index, bool is_power) {
  const LayerSpec& spec = model_.config.layers[static_cast<size_t>(layer_index)];
  const auto D = static_cast<size_t>(model_.config.head_dim);
  std::vector<float> factors =
      random_factors(static_cast<size_t>(model_.config.num_kv_heads) * D, {}, is_power);
  for (size_t c = 0; c < factors.size(); ++c) {
    if (must_share_key_factors(model_.config, layer_index) && c >= D) factors[c] = factors[c - D];
    if (spec.rope_index < 0) continue;
    const auto& rope = model_.config.ropes[static_cast<size_t>(spec.rope_index)];
    const size_t half = rope.inv_freq.size();
    if (c % D >= half && c % D < 2 * half) factors[c] = factors[c - half];
  }
  return factors;
}

std::vector<int32_t> Transform::random_order(const ScalePoint& point) {
  std::vector<int32_t> order(static_cast<size_t>(point.K));
  std::iota(order.begin(), order.end(), 0);
  if (point.kind != InputKind::kAttentionOut) {
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }
  const int64_t D = model_.config.head_dim;
  const int64_t heads_each = model_.config.num_heads / model_.config.num_kv_heads;
  std::vector<int32_t> in_head(static_cast<size_t>(D));
  std::iota(in_head.begin(), in_head.end(), 0);
  for (int64_t head = 0; head < model_.config.num_heads; ++head) {
    if (head % heads_each == 0) std::shuffle(in_head.begin(), in_head.end(), random_);
    for (int64_t d = 0; d < D; ++d) {
      order[static_cast<size_t>(head * D + d)] =
          static_cast<int32_t>(head * D) + in_head[static_cast<size_t>(d)];
    }
  }
  return order;
}

/// Elements of both stores that differ.
size_t count_differences(TensorStore& a, TensorStore& b) {
  size_t count = 0;
  for (const TensorInfo& info : a.tensors()) {
    const std::span<const float> x = a.f32(info.name), y = b.f32(info.name);
    for (size_t i = 0; i < x.size(); ++i) count += x[i] != y[i] ? 1 : 0;
  }
  return count;
}

TEST_P(Transform, TensorsOfLayersInF32AreTheSameModel) {
  EXPECT_LE(deviation_of(run_unchanged(), run(model_.hf, model_.config, *model_.source),
                         model_.config.vocab_size),
            kTolerance);
}

TEST_P(Transform, FactorsBeforeEveryPointKeepTheLogits) {
  const std::vector<float> reference = run_unchanged();
  for (const InputKind kind :
       {InputKind::kAttentionIn, InputKind::kAttentionOut, InputKind::kMlpIn, InputKind::kMlpOut}) {
    const auto logits = run_changed([&](TensorStore& layer, int64_t i) {
      TensorStore old = layer;
      for (const ScalePoint& point : list_scale_points(model_.config, i)) {
        if (point.kind != kind || !point.can_scale) continue;
        const auto factors =
            random_factors(static_cast<size_t>(point.K), point.groups, /*is_power=*/false);
        scale_inputs(layer, model_.config, i, point, factors);
        for (const LinearSpec* spec : point.consumers) {
          const std::string name = spec->parts.back().name + ".weight";
          const float was = old.f32(name).back(), is = layer.f32(name).back();
          EXPECT_EQ(is, was * factors.back()) << name;
        }
      }
    });
    EXPECT_LE(deviation_of(logits, reference, model_.config.vocab_size), kTolerance)
        << static_cast<int>(kind);
  }
}

TEST_P(Transform, PowersOfTwoKeepTheBits) {
  // A gain that is stored less one is rounded when one is taken away again.
  if (model_.config.norm_weight_offset != 0) GTEST_SKIP() << "norms are stored with an offset";
  const auto logits = run_changed([&](TensorStore& layer, int64_t i) {
    for (const ScalePoint& point : list_scale_points(model_.config, i)) {
      if (!point.can_scale) continue;
      const auto factors =
          random_factors(static_cast<size_t>(point.K), point.groups, /*is_power=*/true);
      scale_inputs(layer, model_.config, i, point, factors);
    }
    if (!why_not_smooth_keys(model_.config, i).empty()) return;
    smooth_keys(layer, model_.config, i, random_key_factors(i, /*is_power=*/true));
  });
  EXPECT_EQ(logits, run_unchanged());
}

TEST_P(Transform, OrdersOfChannelsKeepTheLogits) {
  const std::vector<float> reference = run_unchanged();
  for (const InputKind kind : {InputKind::kAttentionOut, InputKind::kMlpOut}) {
    const auto logits = run_changed([&](TensorStore& layer, int64_t i) {
      TensorStore old = layer;
      for (const ScalePoint& point : list_scale_points(model_.config, i)) {
        if (point.kind != kind) continue;
        ASSERT_TRUE(point.can_permute) << point.name;
        const auto order = random_order(point);
        permute_inputs(layer, model_.config, i, point, order);
        const std::string name = point.consumers[0]->parts[0].name + ".weight";
        EXPECT_EQ(layer.f32(name)[1], old.f32(name)[static_cast<size_t>(order[1])]) << name;
      }
      EXPECT_GT(count_differences(layer, old), size_t{1000});
    });
    EXPECT_LE(deviation_of(logits, reference, model_.config.vocab_size), kTolerance)
        << static_cast<int>(kind);
  }
}

TEST_P(Transform, FactorsBetweenQueriesAndKeysKeepTheLogits) {
  if (const std::string why_not = why_not_smooth_keys(model_.config, 0); !why_not.empty()) {
    GTEST_SKIP() << why_not;
  }
  const auto logits = run_changed([&](TensorStore& layer, int64_t i) {
    TensorStore old = layer;
    smooth_keys(layer, model_.config, i, random_key_factors(i, /*is_power=*/false));
    EXPECT_GE(count_differences(layer, old), size_t{30});
  });
  EXPECT_LE(deviation_of(logits, run_unchanged(), model_.config.vocab_size), kTolerance);
}

TEST_P(Transform, RotatedStreamsKeepTheLogits) {
  if (const std::string why_not = why_not_rotate(model_.config); !why_not.empty()) {
    GTEST_SKIP() << why_not;
  }
  ThreadPool pool(2);
  ExecContext context{pool};
  DecoderConfig rotated = model_.config;
  const auto source = make_rotated_source(context, rotated, *model_.source);
  EXPECT_TRUE(rotated.lm_head.has_value());
  EXPECT_EQ(rotated.tied_output_name, "");
  EXPECT_LE(deviation_of(run(model_.hf, rotated, *source),
                         run(model_.hf, model_.config, *model_.source), rotated.vocab_size),
            kTolerance);
  const std::string& norm = rotated.layers[1].mlp_norm->weight_name;
  for (const float gain : to_f32(source->view(*source->find(norm)))) EXPECT_EQ(gain, 1);
}

INSTANTIATE_TEST_SUITE_P(Models, Transform, testing::ValuesIn(model_names()),
                         [](const auto& tested) {
                           return tested.param.substr(tested.param.find('/') + 1);
                         });

class RotatedSize : public testing::TestWithParam<int64_t> {};

/// With biases on all linear layers.
TEST_P(RotatedSize, KeepsTheLogits) {
  const TestedModel model("model_options/llama_biases",
                          [](Json& config) { config["hidden_size"] = GetParam(); });
  ThreadPool pool(1);
  ExecContext context{pool};
  DecoderConfig rotated = model.config;
  const auto source = make_rotated_source(context, rotated, *model.source);
  EXPECT_LE(deviation_of(run(model.hf, rotated, *source),
                         run(model.hf, model.config, *model.source), rotated.vocab_size),
            kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RotatedSize,
                         testing::Values(12, 20, 28, 36, 44, 60, 72, 80, 96, 112));

TEST(RotatedSource, ComputesAgainWhatWasReleased) {
  const TestedModel model("models/llama_mha_tied");
  ThreadPool pool(1);
  ExecContext context{pool};
  DecoderConfig config = model.config;
  const auto source = make_rotated_source(context, config, *model.source);
  for (const char* name :
       {"lm_head.weight", "model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight"}) {
    const TensorInfo& info = *source->find(name);
    const std::vector<float> before = to_f32(source->view(info));
    source->release(info);
    EXPECT_EQ(to_f32(source->view(info)), before) << name;
  }
}

TEST(RotatedSource, SpreadsAChannelThatStandsOut) {
  const TestedModel model("models/llama");
  ThreadPool pool(1);
  ExecContext context{pool};
  TensorStore loud;
  const std::string name = "model.embed_tokens.weight";
  const TensorInfo& info = *model.source->find(name);
  std::vector<float> table = to_f32(model.source->view(info));
  const auto K = static_cast<size_t>(info.shape[1]);
  for (size_t i = 0; i < table.size(); i += K) table[i + 3] = 100;
  loud.set_f32(name, info.shape, table);
  DecoderConfig config = model.config;
  const OverlaySource source(loud, *model.source);
  const auto rotated = make_rotated_source(context, config, source);
  for (const float value : to_f32(rotated->view(*rotated->find(name)))) {
    ASSERT_LT(std::abs(value), 2 * 100 / std::sqrt(static_cast<float>(K)));
  }
}

TEST(RotatedSource, SaysWhyAModelCannotBeRotated) {
  EXPECT_EQ(why_not_rotate(TestedModel("models/opt").config),
            "its LayerNorm takes the mean away, which depends on the channels");
  EXPECT_EQ(why_not_rotate(TestedModel("models/gemma2").config),
            "its blocks have norms behind them, whose gains cannot be folded");
  EXPECT_EQ(why_not_rotate(TestedModel("models/olmo2").config),
            "its blocks have norms behind them, whose gains cannot be folded");
  const TestedModel odd("model_options/llama_biases",
                        [](Json& config) { config["hidden_size"] = 52; });
  EXPECT_EQ(why_not_rotate(odd.config),
            "there is no Hadamard matrix here of its hidden size 52 (expected a power of two times "
            "1, 12, 20, 28, 36, 44 or 60)");
}

std::vector<std::string> names_of(const std::vector<ScalePoint>& points) {
  std::vector<std::string> names;
  for (const ScalePoint& point : points) names.push_back(point.name);
  return names;
}

TEST(ScalePoints, OfALlamaLayerAreFour) {
  const TestedModel model("models/mistral_swa");
  const auto points = list_scale_points(model.config, 1);
  EXPECT_EQ(names_of(points), (std::vector<std::string>{"layers.1.qkv", "layers.1.o",
                                                        "layers.1.gate_up", "layers.1.down"}));
  EXPECT_EQ(points[0].K, 128);
  EXPECT_EQ(points[1].K, 256);  // four heads of 64
  EXPECT_EQ(points[2].K, 128);
  EXPECT_EQ(points[3].K, 256);
  EXPECT_EQ(points[3].consumers,
            std::vector<const LinearSpec*>{&model.config.layers[1].mlp.down[0]});
  EXPECT_FALSE(points[0].can_permute);
  EXPECT_FALSE(points[2].can_permute);
  EXPECT_TRUE(points[0].groups.empty());
  // Heads 0 and 1 read value head 0, heads 2 and 3 value head 1.
  ASSERT_EQ(points[1].groups.size(), size_t{256});
  for (const auto& [channel, group] :
       {std::pair{63, 63}, {64, 0}, {127, 63}, {128, 64}, {193, 65}}) {
    EXPECT_EQ(points[1].groups[static_cast<size_t>(channel)], group) << channel;
  }
  EXPECT_TRUE(list_scale_points(TestedModel("models/opt").config, 0)[1].groups.empty());
}

TEST(ScalePoints, OfExpertsAreOneBeforeAllAndOneInEach) {
  const TestedModel model("models/mixtral");
  const auto points = list_scale_points(model.config, 0);
  EXPECT_EQ(names_of(points),
            (std::vector<std::string>{"layers.0.qkv", "layers.0.o", "layers.0.experts.gate_up",
                                      "layers.0.experts.0.down", "layers.0.experts.1.down",
                                      "layers.0.experts.2.down", "layers.0.experts.3.down"}));
  const MlpSpec& mlp = model.config.layers[0].mlp;
  ASSERT_EQ(points[2].consumers.size(), size_t{5});
  EXPECT_EQ(points[2].consumers[3], &mlp.gate_up[3]);
  EXPECT_EQ(points[2].consumers[4], &*mlp.router);
  EXPECT_EQ(points[5].consumers, std::vector<const LinearSpec*>{&mlp.down[2]});
}

TEST(ScalePoints, SayWhyACurvedMlpWithoutAGateCannotBeScaled) {
  const auto points = list_scale_points(TestedModel("model_options/opt_untied").config, 0);
  EXPECT_FALSE(points[3].can_scale);
  EXPECT_EQ(points[3].why_not,
            "the MLP has no gate and its activation is curved, so a factor before it is not a "
            "factor behind it");
  EXPECT_TRUE(points[3].can_permute);
  EXPECT_TRUE(list_scale_points(TestedModel("models/opt").config, 0)[3].can_scale);
}

TEST(ScalePoints, SayWhyKeysCannotBeSmoothed) {
  TestedModel model("models/qwen3");
  EXPECT_TRUE(must_share_key_factors(model.config, 0));
  model.config.layers[0].q_norm.reset();
  EXPECT_EQ(why_not_smooth_keys(model.config, 0),
            "of queries and keys only one is normed per head");
  EXPECT_FALSE(must_share_key_factors(TestedModel("models/qwen2").config, 0));
  EXPECT_EQ(why_not_smooth_keys(TestedModel("models/olmoe").config, 0),
            "queries and keys are normed over all heads together");
  EXPECT_EQ(why_not_smooth_keys(TestedModel("models/glm4").config, 0),
            "the rotary embedding turns neighbouring columns");
}

TEST(ScalePoints, SayWhyABlockWithoutANormBeforeItCannotBeScaled) {
  const auto points = list_scale_points(TestedModel("models/olmo2").config, 0);
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_FALSE(points[i].can_scale) << points[i].name;
    EXPECT_EQ(points[i].why_not,
              "there is no norm before the block that could be divided by the factors");
  }
  EXPECT_TRUE(points[1].can_scale && points[3].can_scale);
}

TEST(ScalePoints, RejectTensorsOfSeveralExperts) {
  TestedModel model("models/mixtral");
  for (LinearSpec& down : model.config.layers[0].mlp.down) {
    down.parts[0].expert = 0;
    down.parts[0].num_stored_experts = 4;
  }
  ThreadPool pool(1);
  ExecContext context{pool};
  const auto text = testing::ThrowsMessage<UnsupportedError>(testing::HasSubstr(
      R"(models/mixtral: tensor "model.layers.0.block_sparse_moe.experts.0.w2": expected the )"
      "weights of one expert, got those of 4. Save the checkpoint with a tensor for each expert."));
  EXPECT_THAT([&] { read_layer_tensors(model.config, 0, *model.source); }, text);
  EXPECT_THAT([&] { make_rotated_source(context, model.config, *model.source); }, text);
}

TEST(ScalePoints, NameATensorThatIsMissing) {
  const TestedModel model("models/llama");
  const TensorStore nothing;
  const OverlaySource source(nothing, *model.source, {"model.layers.1.self_attn.v_proj.weight"});
  EXPECT_THAT(
      [&] { read_layer_tensors(model.config, 1, source); },
      testing::ThrowsMessage<CheckpointError>(testing::HasSubstr(
          R"(tensor "model.layers.1.self_attn.v_proj.weight": expected a tensor of shape)")));
}

}  // namespace
}  // namespace halley
