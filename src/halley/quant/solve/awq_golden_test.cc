// AWQ as a whole, scales, clipping and rounding, against tools/make_awq_golden.py.

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/solve/clip_search.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/solve/input_stats.h"
#include "halley/quant/solve/scale_search.h"

namespace halley {
namespace {

constexpr double kErrorTolerance = 1e-4;   // relative: accumulation of squares in f32
constexpr double kFactorTolerance = 3e-7;  // relative: the last bits of pow
constexpr double kWeightTolerance = 1e-6;

class AwqGolden : public testing::TestWithParam<std::pair<std::string, GridOptions>> {
 protected:
  std::vector<float> values(const std::string& name) {
    const TensorInfo* info = source_->find(name);
    if (info == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    std::vector<float> result(info->num_bytes / sizeof(float));
    std::memcpy(result.data(), source_->view(*info).data, info->num_bytes);
    return result;
  }
  std::vector<float> of_case(const std::string& name) {
    return values(GetParam().first + "." + name);
  }

  InputStats stats(bool has_gram) {
    const auto num_tokens = static_cast<int64_t>(x_.size()) / kInputs;
    InputStatsCollector collector(
        kInputs, {.has_gram = has_gram, .num_rows = num_tokens, .num_tokens_expected = num_tokens});
    collector.add(context_, f32_matrix(std::as_const(x_).data(), num_tokens, kInputs));
    return collector.finish(context_);
  }

  AwqScales scales() {
    const ConstMatrix w = f32_matrix(std::as_const(w_).data(), kOutputs, kInputs);
    const ConstMatrix weights[] = {w.rows(0, 32), w.rows(32, kOutputs)};
    return search_awq_scales(
        context_, weights, stats(false), [&](Matrix part, std::span<const float>) {
          decode(round_to_nearest(context_, part, *make_minmax_rule(GetParam().second, {})), part);
        });
  }

  static void decode(const QuantizedWeight& quantized, Matrix w) {
    for (int64_t n = 0; n < w.num_rows; ++n)
      dequantize_row(quantized, n, {w.row<float>(n), kInputs});
  }

  static constexpr int64_t kOutputs = 48, kInputs = 192;
  std::unique_ptr<TensorSource> source_ = open_checkpoint_weights(
      std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" / "quantizers" / "awq");
  std::vector<float> x_ = values("x"), w_ = values("w");
  ThreadPool pool_{2};
  ExecContext context_{pool_};
};

TEST_P(AwqGolden, FindsTheSameFactors) {
  const AwqScales found = scales();
  EXPECT_FLOAT_EQ(static_cast<float>(found.ratio), of_case("ratio").at(0));
  const std::vector<float> errors = of_case("errors");
  EXPECT_NEAR(found.error, errors.at(0), kErrorTolerance * found.error);
  EXPECT_NEAR(found.error_unscaled, errors.at(1), kErrorTolerance * found.error_unscaled);
  const std::vector<float> factors = of_case("factors");
  ASSERT_EQ(found.factors.size(), factors.size());
  for (size_t k = 0; k < factors.size(); ++k) {
    EXPECT_NEAR(found.factors[k], factors[k], kFactorTolerance * factors[k]) << k;
  }
}

TEST_P(AwqGolden, MakesTheSameWeights) {
  const GridOptions& options = GetParam().second;
  const int64_t num_groups = kInputs / options.group_size;
  const std::vector<float> factors = scales().factors;
  const std::vector<float> inverse = inverse_of(factors);
  const Matrix w = f32_matrix(w_.data(), kOutputs, kInputs);
  for (size_t i = 0; i < w_.size(); ++i) w_[i] *= factors[i % size_t{kInputs}];
  for (const bool has_gram : {false, true}) {
    InputStats inputs = stats(has_gram);
    scale_stats(inputs, inverse);
    std::vector<float> clip =
        search_clip(context_, w, inputs, options.group_size,
                    [&](std::vector<float> ratios) {
                      return make_minmax_rule(options, std::move(ratios), num_groups);
                    },
                    {});
    EXPECT_EQ(clip, of_case("clip")) << has_gram;
    const auto rule = make_minmax_rule(options, std::move(clip), num_groups);
    const QuantizedWeight quantized = round_to_nearest(context_, w, *rule);
    std::vector<float> decoded(w_.size());
    decode(quantized, f32_matrix(decoded.data(), kOutputs, kInputs));
    const std::vector<float> expected = of_case("weight");
    ASSERT_EQ(decoded.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(decoded[i], expected[i], kWeightTolerance) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AwqGolden,
    testing::Values(
        std::pair{"asym_g32", GridOptions{.bits = 4, .group_size = 32}},
        std::pair{"sym_g32", GridOptions{.bits = 4, .group_size = 32, .is_symmetric = true}},
        std::pair{"asym_g64", GridOptions{.bits = 4, .group_size = 64}},
        std::pair{"sym_g64", GridOptions{.bits = 4, .group_size = 64, .is_symmetric = true}}),
    [](const auto& instance) { return instance.param.first; });

}  // namespace
}  // namespace halley
