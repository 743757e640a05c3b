#include "halley/quant/inspection/activation_stats.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/testing/golden_model.h"

namespace halley {
namespace {

TEST(ActivationStatsTest, PlantedOutlierIsFoundAndPutFirst) {
  ActivationSite site;
  site.name = "layers.0.down";
  site.before.abs_max.assign(300, 1.0f);
  site.before.abs_mean.assign(300, 0.5f);
  site.before.abs_max[200] = 93;
  site.after = site.before;
  std::swap(site.after.abs_max[0], site.after.abs_max[200]);
  site.num_s8_inputs = 128;
  const SiteSummary summary = summarize(site);
  EXPECT_EQ(summary.worst_channel, 200);
  EXPECT_EQ(summary.ratio, 93);
  EXPECT_EQ(summary.num_blocks, 3);
  EXPECT_EQ(summary.outlier_blocks, 1);
  EXPECT_EQ(summary.num_outliers_in_s4, 0);
  EXPECT_NE(reason_of(site).find("channel 200 is 93 times the median channel; 33.3 % of blocks of "
                                 "128 hold an outlier (1 of 3)"),
            std::string::npos)
      << reason_of(site);
  site.num_s8_inputs = 0;
  EXPECT_EQ(summarize(site).num_outliers_in_s4, 1);
}

TEST(ActivationStatsTest, HeadsHaveMediansOfTheirOwn) {
  ActivationSite site;
  site.head_dim = 4;
  site.before.abs_max = {100, 100, 100, 200, 1, 1, 1, 9};
  site.after = site.before;
  EXPECT_EQ(summarize(site).worst_channel, 7);
  EXPECT_EQ(summarize(site).ratio, 9);
}

TEST(ActivationStatsTest, ReadsLayers) {
  EXPECT_EQ(parse_layers("", 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(parse_layers("5,0,3-5", 6), (std::vector<int64_t>{0, 3, 4, 5}));
  for (const char* text : {"6", "-1", "1-", "a", "2-1", "0,", ",", "0-99999999999999999999"}) {
    EXPECT_THROW(parse_layers(text, 6), InputError) << text;
  }
}

/// The model computes the same before and after, so that keys, inputs and their factors agree.
TEST(ActivationStatsTest, TransformsKeepWhatTheyMust) {
  ThreadPool pool(2);
  ExecContext context{pool};
  const auto folder = testdata("models") / "llama";
  const HfConfig config = HfConfig::load(folder);
  const auto source = open_checkpoint_weights(folder);
  CalibrationTokens tokens = {.ids = {}, .sequence_length = 40};
  for (int32_t i = 0; i < 80; ++i) tokens.ids.push_back(i * 37 % 384);
  const ActivationReport report = measure_activations(context, config, *source, tokens, {1}, {});
  ASSERT_EQ(report.sites.size(), 6u);
  for (const ActivationSite& site : report.sites) {
    EXPECT_EQ(site.layer, 1);
    EXPECT_EQ(site.num_tokens, 80);
    ASSERT_EQ(site.after.abs_max.size(), site.before.abs_max.size());
    if (site.is_head_site()) continue;
    std::vector<int32_t> sorted = site.perm;
    std::sort(sorted.begin(), sorted.end());
    for (size_t k = 0; k < sorted.size(); ++k) EXPECT_EQ(sorted[k], static_cast<int32_t>(k));
    // A factor divides max and mean alike.
    for (size_t k = 0; k < site.perm.size(); ++k) {
      const auto from = static_cast<size_t>(site.perm[k]);
      EXPECT_NEAR(site.after.abs_max[k] * site.before.abs_mean[from],
                  site.after.abs_mean[k] * site.before.abs_max[from],
                  1e-3f * site.after.abs_max[k] * site.before.abs_mean[from] + 1e-9f)
          << site.name;
    }
  }
  // SmoothAttention: k / sqrt(max |k| of the rotary pair), D = 32.
  const ActivationSite& keys = report.sites[4];
  ASSERT_EQ(keys.name, "layers.1.keys");
  for (size_t c = 0; c < keys.before.abs_max.size(); ++c) {
    const size_t other = c % 32 < 16 ? c + 16 : c - 16;
    const float pair = std::max(keys.before.abs_max[c], keys.before.abs_max[other]);
    const float expected = keys.before.abs_max[c] / std::sqrt(pair);
    EXPECT_NEAR(keys.after.abs_max[c], expected, 1e-4f * expected) << c;
  }
}

}  // namespace
}  // namespace halley
