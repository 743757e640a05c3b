// Slices of the golden checkpoint of every format, as the ranks of tensor parallelism load them:
// packing a slice is slicing what was packed.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/core/thread_pool.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/base/input_slice.h"
#include "halley/quant/base/linear_loader.h"
#include "halley/quant/base/open_section.h"
#include "halley/quant/base/testing/golden_checkpoint.h"

namespace halley {
namespace {

constexpr int64_t kNumRows = 3;
constexpr float kUnset = std::numeric_limits<float>::infinity();

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  const auto dir = std::filesystem::path(HALLEY_SOURCE_DIR) / "testdata" / "quantized";
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  return names;
}

std::vector<float> random_rows(int64_t num_columns) {
  std::mt19937 random(static_cast<uint32_t>(num_columns));
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(kNumRows * num_columns));
  for (float& value : x) value = normal(random);
  return x;
}

/// One golden checkpoint, each layer whole and in slices.
class Slices {
 public:
  explicit Slices(const std::string& name)
      : golden_(name), scheme_(detect_quant_scheme(golden_.quant, *golden_.source)) {}

  void expect_all(int64_t num_ranks) {
    for (const Json& linear : golden_.expected.at("linears")) {
      const LinearSpec spec = linear_spec_of(linear);
      fprintf(stderr, "%s %s %ld\n", golden_.dir.c_str(), spec.display_name().c_str(), num_ranks);
      SCOPED_TRACE(spec.display_name() + " for " + std::to_string(num_ranks) + " ranks");
      const LinearOp whole = load(spec);
      expect_outputs(spec, whole, num_ranks);
      expect_inputs(spec, whole, num_ranks);
    }
  }

  int64_t num_cut() const { return num_cut_; }

 private:
  LinearOp load(const LinearSpec& spec) {
    return load_linear(context_, {*scheme_, *golden_.source, demands_}, spec);
  }

  static std::vector<float> row_of(const LinearOp& op, int64_t n) {
    std::vector<float> row(static_cast<size_t>(op.num_inputs()), kUnset);
    unpack_row(op.weight(), n, row.data());
    return row;
  }

  std::vector<float> multiply(const LinearOp& op, ConstMatrix x,
                              std::span<const float> magnitudes) {
    ExecContext context = context_;
    context.row_magnitudes = magnitudes;
    std::vector<float> y(static_cast<size_t>(kNumRows * op.out_features()));
    op.run(context, x, f32_matrix(y.data(), kNumRows, op.out_features()));
    return y;
  }

  /// Rows from any on: those of a slice are the whole's.
  void expect_outputs(LinearSpec spec, const LinearOp& whole, int64_t num_ranks) {
    const int64_t N = whole.out_features();
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const int64_t begin = N * rank / num_ranks, end = N * (rank + 1) / num_ranks;
      spec.parts[0].row_begin = begin;
      spec.parts[0].out_features = end - begin;
      const LinearOp slice = load(spec);
      ASSERT_EQ(slice.out_features(), end - begin);
      for (int64_t n = begin; n < end; ++n) {
        ASSERT_EQ(row_of(slice, n - begin), row_of(whole, n)) << "row " << n;
      }
    }
  }

  /// Each input is in one slice, and the slices' results add up to the whole's.
  void expect_inputs(LinearSpec spec, const LinearOp& whole, int64_t num_ranks) {
    const int64_t N = whole.out_features(), K = spec.in_features;
    const int64_t unit = unit_of(spec);
    const int64_t num_units = ceil_div(K, unit);
    if (num_units < num_ranks) return;
    std::vector<std::vector<float>> rows(static_cast<size_t>(N),
                                         std::vector<float>(static_cast<size_t>(K), kUnset));
    const std::vector<float> x = random_rows(K);
    const ConstMatrix all = f32_matrix(x.data(), kNumRows, K);
    std::vector<float> magnitudes;
    for (int64_t m = 0; m < kNumRows; ++m) {
      const auto row = std::span(x).subspan(static_cast<size_t>(m * K), static_cast<size_t>(K));
      magnitudes.push_back(*std::max_element(
          row.begin(), row.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
      magnitudes.back() = std::fabs(magnitudes.back());
    }
    std::vector<double> sum(static_cast<size_t>(kNumRows * N));
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const InputRange range = {num_units * rank / num_ranks * unit,
                                std::min(K, num_units * (rank + 1) / num_ranks * unit)};
      spec.inputs = range;
      const LinearOp slice = load(spec);
      const bool takes_all = slice.num_inputs() == K;
      const int64_t first = takes_all ? 0 : range.begin;
      ASSERT_EQ(slice.num_inputs(), takes_all ? K : range.size());
      for (int64_t n = 0; n < N; ++n) {
        const std::vector<float> row = row_of(slice, n);
        for (size_t k = 0; k < row.size(); ++k) {
          float& value = rows[static_cast<size_t>(n)][static_cast<size_t>(first) + k];
          if (row[k] == kUnset) continue;
          ASSERT_EQ(value, kUnset) << "input " << k << " is in two slices";
          value = row[k];
        }
      }
      const auto y =
          multiply(slice, takes_all ? all : all.cols(range.begin, range.end), magnitudes);
      for (size_t i = 0; i < y.size(); ++i) sum[i] += y[i];
    }
    for (int64_t n = 0; n < N; ++n) {
      ASSERT_EQ(rows[static_cast<size_t>(n)], row_of(whole, n)) << "row " << n;
    }
    const std::vector<float> y = multiply(whole, all, {});
    double largest = 0;
    for (const float value : y) largest = std::max(largest, std::fabs(double{value}));
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(sum[i], y[i], 1e-4 * largest) << i;
    ++num_cut_;
  }

  int64_t unit_of(const LinearSpec& spec) {
    return input_unit(open_sections(*scheme_, *golden_.source, spec).at(0).desc(),
                      spec.in_features);
  }

  const GoldenCheckpoint golden_;
  const std::unique_ptr<QuantScheme> scheme_;
  const KernelDemands demands_;
  ThreadPool pool_{1};
  ExecContext context_{pool_};
  int64_t num_cut_ = 0;
};

TEST(Slices, ArePackedAsTheWholeIs) {
  int64_t num_cut = 0;
  for (const std::string& name : golden_names()) {
    SCOPED_TRACE(name);
    Slices slices(name);
    for (const int64_t num_ranks : {1, 2, 4, 8}) slices.expect_all(num_ranks);
    num_cut += slices.num_cut();
  }
  EXPECT_GT(num_cut, 200);
}

}  // namespace
}  // namespace halley
