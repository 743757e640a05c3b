#include "halley/quant/solve/gptq_solver.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

/// A layer to be rounded: weights [N, K], and the Gram matrix of its inputs.
struct Layer {
  int64_t N = 0;
  int64_t K = 0;
  std::vector<float> w;
  std::vector<float> gram;

  float& gram_at(int64_t i, int64_t j) { return gram[static_cast<size_t>(i * K + j)]; }
};

/// Inputs that share three directions and have sizes from 1/4 to 4; 2 tokens for each channel.
Layer correlated_layer(int64_t N, int64_t K, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Layer layer = {N, K, std::vector<float>(static_cast<size_t>(N * K)),
                 std::vector<float>(static_cast<size_t>(K * K))};
  for (float& w : layer.w) w = 0.05f * normal(random);
  std::vector<float> directions(static_cast<size_t>(3 * K)), x(static_cast<size_t>(K));
  for (float& value : directions) value = normal(random);
  for (int64_t t = 0; t < 2 * K; ++t) {
    const float shared[3] = {normal(random), normal(random), normal(random)};
    for (int64_t k = 0; k < K; ++k) {
      float value = normal(random);
      for (int64_t i = 0; i < 3; ++i) {
        value += shared[i] * directions[static_cast<size_t>(i * K + k)];
      }
      x[static_cast<size_t>(k)] = std::ldexp(value, static_cast<int>(k * 7 % 5) - 2);
    }
    for (int64_t i = 0; i < K; ++i) {
      for (int64_t j = 0; j < K; ++j) {
        layer.gram_at(i, j) += x[static_cast<size_t>(i)] * x[static_cast<size_t>(j)];
      }
    }
  }
  return layer;
}

/// The layer is used up only in the copy.
QuantizedWeight solved(Layer layer, const GridRule& rule, const GptqOptions& options,
                       int num_threads = 2) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  return solve_gptq(context, "a.b", f32_matrix(layer.w.data(), layer.N, layer.K),
                    f32_matrix(layer.gram.data(), layer.K, layer.K), rule, options);
}

QuantizedWeight rounded(const Layer& layer, const GridRule& rule) {
  ThreadPool pool(1);
  ExecContext context{pool};
  return round_to_nearest(context, f32_matrix(layer.w.data(), layer.N, layer.K), rule);
}

/// tr(dW G dW^T): the squared error of the layer's outputs on its inputs.
double output_error(Layer& layer, const QuantizedWeight& weight) {
  double sum = 0;
  std::vector<float> row(static_cast<size_t>(layer.K));
  std::vector<double> difference(row.size());
  for (int64_t n = 0; n < layer.N; ++n) {
    dequantize_row(weight, n, row);
    for (size_t k = 0; k < row.size(); ++k) {
      difference[k] = double{row[k]} - double{layer.w[static_cast<size_t>(n * layer.K) + k]};
    }
    for (int64_t i = 0; i < layer.K; ++i) {
      for (int64_t j = 0; j < layer.K; ++j) {
        sum += difference[static_cast<size_t>(i)] * double{layer.gram_at(i, j)} *
               difference[static_cast<size_t>(j)];
      }
    }
  }
  return sum;
}

/// The golden of tools/make_gptq_golden.py.
class Golden {
 public:
  Golden()
      : source_(open_checkpoint_weights(std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" /
                                        "quantizers" / "gptq")) {}

  bool has_case(int index) const { return source_->find(str(index, ".settings")) != nullptr; }
  TensorView view(const std::string& name) const { return source_->view(*source_->find(name)); }
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const TensorView tensor = view(name);
    std::vector<T> values(static_cast<size_t>(tensor.num_elements()));
    std::memcpy(values.data(), tensor.data, tensor.num_bytes());
    return values;
  }
  std::vector<float> f16_values(const std::string& name) const {
    std::vector<float> result;
    for (const uint16_t bits : values<uint16_t>(name)) result.push_back(f16_to_f32(bits));
    return result;
  }

 private:
  std::unique_ptr<TensorSource> source_;
};

TEST(SolveGptq, GivesTheWeightsOfThePublishedAlgorithm) {
  const Golden golden;
  int index = 0;
  for (; golden.has_case(index); ++index) {
    SCOPED_TRACE(index);
    const auto settings = golden.values<int32_t>(str(index, ".settings"));
    const Shape shape = golden.view(str(index, ".w")).shape;
    const int64_t N = shape[0], K = shape[1];
    const int64_t group_size = settings[1] < 0 ? K : settings[1];
    const bool is_symmetric = settings[2] != 0;
    const auto rule = make_minmax_rule({settings[0], group_size, is_symmetric}, {});
    const QuantizedWeight weight =
        solved({N, K, golden.f16_values(str(index, ".w")), golden.values<float>("gram")}, *rule,
               {.has_act_order = settings[3] != 0, .has_static_groups = settings[4] != 0});
    QuantizedWeight expected = rule->start(N, K);
    expected.codes = golden.values<uint8_t>(str(index, ".codes"));
    expected.scales = golden.f16_values(str(index, ".scales"));
    expected.zeros = golden.values<uint8_t>(str(index, ".zeros"));
    expected.group_of_input = golden.values<int32_t>(str(index, ".groups"));
    EXPECT_EQ(weight.group_of_input.empty(), settings[3] == 0 || settings[4] != 0);
    double error = 0;
    std::vector<float> row(static_cast<size_t>(K)), expected_row(row.size());
    for (int64_t n = 0; n < N; ++n) {
      dequantize_row(weight, n, row);
      dequantize_row(expected, n, expected_row);
      for (size_t k = 0; k < row.size(); ++k) {
        error = std::max(error, std::abs(double{row[k]} - double{expected_row[k]}));
      }
    }
    EXPECT_LT(error, 1e-6);
  }
  EXPECT_EQ(index, 10);
}

const std::vector<GptqOptions> kOrders = {{},
                                          {.has_act_order = true},
                                          {.has_static_groups = true},
                                          {.has_act_order = true, .has_static_groups = true}};

TEST(SolveGptq, LosesLessThanRoundingToNearest) {
  for (const int64_t group_size : {32, 48, 130, 300}) {
    Layer layer = correlated_layer(17, 300, 1);
    const auto rule = make_minmax_rule({4, group_size, false}, {});
    const double nearest = output_error(layer, rounded(layer, *rule));
    for (const GptqOptions& options : kOrders) {
      const QuantizedWeight weight = solved(layer, *rule, options);
      // Half of it at most: these inputs share directions.
      EXPECT_LT(output_error(layer, weight), 0.5 * nearest)
          << group_size << " " << options.has_act_order << options.has_static_groups;
    }
  }
}

TEST(SolveGptq, LosesLessThanRoundingToNearestWithTwoLevels) {
  Layer layer = correlated_layer(9, 256, 2);
  const auto rule = make_progressive_rule(f32_matrix(layer.w.data(), 9, 256), 128, {});
  const QuantizedWeight weight = solved(layer, *rule, {});
  EXPECT_LT(output_error(layer, weight), 0.5 * output_error(layer, rounded(layer, *rule)));
  for (size_t i = 0; i < weight.codes.size(); ++i) {
    const size_t group = i / 128;
    const int s8 = (int{weight.codes[i]} - weight.zeros[group]) * weight.factors[group];
    ASSERT_TRUE(-128 <= s8 && s8 <= 127) << s8;
  }
}

TEST(SolveGptq, IsRoundingToNearestWhereInputsAreNotCorrelated) {
  Layer layer = correlated_layer(5, 150, 3);
  for (int64_t i = 0; i < 150; ++i) {
    for (int64_t j = 0; j < 150; ++j)
      layer.gram_at(i, j) = i == j ? static_cast<float>(1 + i % 7) : 0.0f;
  }
  const auto rule = make_minmax_rule({4, 32, false}, {});
  const QuantizedWeight nearest = rounded(layer, *rule);
  for (const GptqOptions& options : kOrders) {
    if (options.has_act_order && !options.has_static_groups) continue;  // other groups
    const QuantizedWeight weight = solved(layer, *rule, options);
    EXPECT_EQ(weight.codes, nearest.codes);
    EXPECT_EQ(weight.scales, nearest.scales);
    EXPECT_EQ(weight.zeros, nearest.zeros);
  }
}

TEST(SolveGptq, GivesTheSameBitsForAnyNumberOfThreads) {
  const Layer layer = correlated_layer(33, 280, 4);
  const auto rule = make_minmax_rule({4, 64, false}, {});
  for (const GptqOptions& options : kOrders) {
    const QuantizedWeight one = solved(layer, *rule, options, 1);
    for (const int num_threads : {2, 5}) {
      const QuantizedWeight other = solved(layer, *rule, options, num_threads);
      EXPECT_EQ(one.codes, other.codes);
      EXPECT_EQ(one.scales, other.scales);
      EXPECT_EQ(one.zeros, other.zeros);
      EXPECT_EQ(one.group_of_input, other.group_of_input);
    }
  }
}

TEST(SolveGptq, GivesDeadChannelsWeightsOfZero) {
  Layer layer = correlated_layer(7, 70, 5);
  for (const int64_t dead : {0, 31, 69}) {
    for (int64_t k = 0; k < 70; ++k) layer.gram_at(dead, k) = layer.gram_at(k, dead) = 0.0f;
  }
  const auto rule = make_minmax_rule({4, 32, true}, {});
  std::vector<float> row(70);
  for (const GptqOptions& options : kOrders) {
    const QuantizedWeight weight = solved(layer, *rule, options);
    for (int64_t n = 0; n < 7; ++n) {
      dequantize_row(weight, n, row);
      for (const size_t dead : {0, 31, 69}) EXPECT_EQ(row[dead], 0.0f);
      EXPECT_LT(std::count(row.begin(), row.end(), 0.0f), 35);
    }
  }
  layer.gram.assign(layer.gram.size(), 0.0f);
  const QuantizedWeight nothing = solved(layer, *rule, {});
  for (int64_t n = 0; n < 7; ++n) {
    dequantize_row(nothing, n, row);
    EXPECT_EQ(row, std::vector<float>(70));
  }
}

TEST(SolveGptq, RaisesTheDampingWhereTheMatrixNeedsIt) {
  Layer layer = correlated_layer(3, 40, 6);
  // Two channels with a correlation above one, as rounding errors may make it: a hundredth of the
  // mean diagonal does not help, a tenth does.
  const float diagonal = layer.gram_at(4, 4);
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 40; ++j) layer.gram_at(i, j) = i == j ? diagonal : 0.0f;
  }
  layer.gram_at(4, 9) = layer.gram_at(9, 4) = 1.05f * diagonal;
  const auto rule = make_minmax_rule({4, 32, false}, {});
  const QuantizedWeight weight = solved(layer, *rule, {.damp = 0.01});
  EXPECT_EQ(weight.codes, solved(layer, *rule, {.damp = 0.1}).codes);
}

TEST(SolveGptq, SaysWhereDampingDoesNotHelp) {
  Layer layer = correlated_layer(3, 40, 7);
  layer.gram_at(5, 5) = -1e9f;
  const auto rule = make_minmax_rule({4, 32, false}, {});
  for (const GptqOptions& options : kOrders) {
    EXPECT_THAT([&] { solved(layer, *rule, options); },
                ThrowsMessage<InputError>(
                    AllOf(StartsWith("a.b: expected inputs whose Gram matrix is positive definite"),
                          HasSubstr("with 1 of its mean diagonal -"), HasSubstr("Use other"))));
  }
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    layer.gram_at(5, 5) = wrong;
    for (const GptqOptions& options : kOrders) {
      EXPECT_THAT([&] { solved(layer, *rule, options); },
                  ThrowsMessage<InputError>(HasSubstr("got one that is not")));
    }
  }
}

}  // namespace
}  // namespace halley
