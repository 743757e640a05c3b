#include "halley/quant/methods/block_clip.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/testing/golden_model.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/transform/scale_points.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/solve/grid_rule.h"

namespace halley {
namespace {

constexpr int64_t kGroupSize = 64;
constexpr int64_t kLength = 33;
constexpr int64_t kNumSequences = 5;
constexpr int64_t kNumCompared = 2;  // sequences on which blocks are compared
// The same accumulation in another order.
constexpr double kErrorTolerance = 1e-3;

CalibrationTokens random_tokens() {
  CalibrationTokens tokens = {.ids = {}, .sequence_length = kLength};
  uint32_t state = 11;
  for (int64_t i = 0; i < kNumSequences * kLength; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.ids.push_back(static_cast<int32_t>((state >> 8) % 384));
  }
  return tokens;
}

/// Outputs of a layer's o_proj.
class AttentionOutputs final : public LayerObserver {
 public:
  explicit AttentionOutputs(const LinearSpec& o) : o_(o) {}
  void on_linear(const LinearSpec& spec, const LinearOp&, ConstMatrix, ConstMatrix y) override {
    if (&spec != &o_) return;
    values.insert(values.end(), y.row<float>(0), y.row<float>(0) + y.num_rows * y.num_cols);
  }
  void on_keys_values(ConstMatrix, ConstMatrix) override {}
  std::vector<float> values;

 private:
  const LinearSpec& o_;
};

/// Layer 0 of a small model with calibration tokens in front of it.
class Fixture {
 public:
  explicit Fixture(const std::string& family, int num_threads = 2)
      : pool_(num_threads),
        context{pool_},
        hf_(HfConfig::load(testdata("models") / family)),
        source_(open_checkpoint_weights(testdata("models") / family)),
        config_(read_decoder_config(hf_, *source_, 0)),
        stats_(context, config_.layers[0], {.num_tokens = kNumSequences * kLength}),
        run_(context, config_, random_tokens(), *source_),
        layer{.context = context,
              .config = config_,
              .index = 0,
              .tensors = read_layer_tensors(config_, 0, *source_),
              .stats = stats_,
              .notes = {}} {}

  /// Outputs of the attention block, run alone or as part of the layer.
  std::vector<float> outputs(bool is_attention_only, int64_t num_sequences) {
    AttentionOutputs result(layer.spec().o);
    run(layer.tensors, result, is_attention_only, num_sequences);
    return result.values;
  }
  BlockClip block_clip() {
    return {layer, [this](const TensorSource& tensors, LayerObserver& observer) {
              run(tensors, observer, true, kNumCompared);
            }};
  }
  static BlockClip::Quantize quantize_function_of(ExecContext& context, ConstMatrix w) {
    return [&context, w](std::vector<float> clip) {
      const GridOptions grid = {.bits = 3, .group_size = kGroupSize};
      return round_to_nearest(context, w,
                              *make_minmax_rule(grid, std::move(clip), w.num_cols / kGroupSize));
    };
  }
  /// The block's squared error with one weight as `quantized` has it.
  double error_of(const std::string& name, const QuantizedWeight& quantized) {
    const std::vector<float> expected = outputs(false, kNumCompared);
    const std::span<float> values = layer.tensors.f32(name + ".weight");
    const std::vector<float> exact(values.begin(), values.end());
    for (int64_t n = 0; n < quantized.N; ++n) {
      dequantize_row(
          quantized, n,
          values.subspan(static_cast<size_t>(n * quantized.K), static_cast<size_t>(quantized.K)));
    }
    const std::vector<float> got = outputs(false, kNumCompared);
    std::copy(exact.begin(), exact.end(), values.begin());
    double error = 0;
    for (size_t i = 0; i < got.size(); ++i) error += std::pow(double{got[i]} - expected[i], 2);
    return error;
  }
  const std::string& name(size_t part) const { return layer.spec().qkv.parts[part].name; }
  std::vector<float> weight_of(const std::string& name) {
    const std::span<float> values = layer.tensors.f32(name + ".weight");
    return {values.begin(), values.end()};
  }

 private:
  void run(const TensorSource& tensors, LayerObserver& observer, bool is_attention_only,
           int64_t num_sequences_max) {
    const std::unique_ptr<QuantScheme> scheme = detect_quant_scheme({}, tensors);
    const KernelDemands demands;
    const LinearLoading loading = {*scheme, tensors, demands};
    run_.run_layer(0,
                   is_attention_only ? load_attention_weights(context, config_, loading, 0)
                                     : load_layer_weights(context, config_, loading, 0),
                   {.observer = &observer,
                    .is_attention_only = is_attention_only,
                    .num_sequences_max = num_sequences_max});
  }

  ThreadPool pool_;

 public:
  ExecContext context;

 private:
  HfConfig hf_;
  std::unique_ptr<TensorSource> source_;
  DecoderConfig config_;
  LayerStats stats_;
  CalibrationRun run_;

 public:
  LayerInWork layer;
};

class BlockClipFamilyTest : public testing::TestWithParam<std::string> {};

TEST_P(BlockClipFamilyTest, AttentionAloneIsThatOfTheLayer) {
  Fixture fixture(GetParam());
  std::vector<float> whole = fixture.outputs(false, 0);
  EXPECT_EQ(fixture.outputs(true, 0), whole);
  EXPECT_EQ(fixture.outputs(true, kNumSequences + 1), whole);
  whole.resize(whole.size() / kNumSequences * kNumCompared);
  EXPECT_EQ(fixture.outputs(true, kNumCompared), whole);
}

TEST_P(BlockClipFamilyTest, ChosenRangesLoseNoMoreAtTheBlock) {
  Fixture fixture(GetParam());
  BlockClip block_clip = fixture.block_clip();
  for (const size_t part : {size_t{0}, size_t{1}}) {
    const std::string& name = fixture.name(part);
    const std::vector<float> exact = fixture.weight_of(name);
    const Matrix w = weight_matrix(fixture.layer.tensors, name);
    const ConstMatrix copy = f32_matrix(exact.data(), w.num_rows, w.num_cols);
    const BlockClip::Quantize quantize = Fixture::quantize_function_of(fixture.context, copy);
    const std::vector<float> given(static_cast<size_t>(w.num_rows * (w.num_cols / kGroupSize)),
                                   0.75f);
    std::vector<float> clip = given;
    block_clip.choose(name, quantize, clip);
    EXPECT_EQ(fixture.weight_of(name), exact) << name;
    const BlockClip::Errors errors = block_clip.errors().at(name);
    const double before = fixture.error_of(name, quantize(given));
    const double after = fixture.error_of(name, quantize(clip));
    EXPECT_LT(after, before) << name;
    EXPECT_NEAR(errors.before, before, kErrorTolerance * before) << name;
    EXPECT_NEAR(errors.after, after, kErrorTolerance * after) << name;
    EXPECT_LE(*std::max_element(clip.begin(), clip.end()), 1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockClipFamilyTest,
                         testing::Values("llama", "qwen2", "qwen3", "opt", "gemma2"));

TEST(BlockClipTest, ValuesKeepTheirRanges) {
  Fixture fixture("llama");
  BlockClip block_clip = fixture.block_clip();
  std::vector<float> clip = {0.5f};
  block_clip.choose(fixture.name(2), {}, clip);
  EXPECT_EQ(clip, std::vector<float>{0.5f});
  EXPECT_TRUE(block_clip.errors().empty());
}

TEST(BlockClipTest, SaysThatQueriesAndKeysAreOneTensor) {
  const Fixture fixture("phi3");
  EXPECT_EQ(why_not_clip_by_block(fixture.layer.spec()),
            "queries and keys are stored as one tensor, model.layers.0.self_attn.qkv_proj");
  EXPECT_EQ(why_not_clip_by_block(Fixture("llama").layer.spec()), "");
}

}  // namespace
}  // namespace halley
