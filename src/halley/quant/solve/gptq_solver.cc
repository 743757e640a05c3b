#include "halley/quant/solve/gptq_solver.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/linalg/linalg.h"

namespace halley {
namespace {

// Columns whose errors are gathered before the later columns are updated for all of them at once.
constexpr int64_t kBlockColumns = 128;

// Rows that a thread takes at a time.
constexpr int64_t kRowsPerTask = 8;

using Columns = std::vector<int32_t>;

template <class Body>
void for_rows(ExecContext& context, int64_t num_rows, const Body& body) {
  context.pool.run(ceil_div(num_rows, kRowsPerTask), [&](int64_t task, int) {
    const int64_t end = std::min(num_rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) body(row);
  });
}

// A channel that was always zero: its weights mean nothing, and its diagonal must not be zero.
void remove_dead_channels(ExecContext& context, Matrix w, Matrix gram) {
  Columns dead;
  for (int64_t k = 0; k < gram.num_rows; ++k) {
    if (gram.row<float>(k)[k] != 0.0f) continue;
    gram.row<float>(k)[k] = 1.0f;
    dead.push_back(static_cast<int32_t>(k));
  }
  if (dead.empty()) return;
  for_rows(context, w.num_rows, [&](int64_t n) {
    for (const int32_t k : dead) w.row<float>(n)[k] = 0.0f;
  });
}

// The permutation in which the channels are rounded.
Columns rounding_perm(ConstMatrix gram, bool has_act_order) {
  Columns perm(static_cast<size_t>(gram.num_rows));
  std::iota(perm.begin(), perm.end(), 0);
  if (!has_act_order) return perm;
  std::vector<float> diagonal;
  for (int64_t k = 0; k < gram.num_rows; ++k) {
    // A NaN, which cannot be sorted, counts as zero: such a matrix has no factor, which throws
    // later.
    diagonal.push_back(std::fmax(gram.row<float>(k)[k], 0.0f));
  }
  const auto is_before = [&](int32_t a, int32_t b) {
    return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
  };
  std::stable_sort(perm.begin(), perm.end(), is_before);
  return perm;
}

// Column i becomes the former column perm[i].
void permute_columns(ExecContext& context, const Columns& perm, Matrix matrix) {
  for_rows(context, matrix.num_rows, [&](int64_t row) {
    float* values = matrix.row<float>(row);
    const std::vector<float> before(values, values + matrix.num_cols);
    for (size_t i = 0; i < perm.size(); ++i) values[i] = before[static_cast<size_t>(perm[i])];
  });
}

// Row i becomes the former row perm[i], by walking the cycles: a copy would take as much memory as
// the matrix.
void permute_rows(const Columns& perm, Matrix matrix) {
  const auto num_cols = static_cast<size_t>(matrix.num_cols);
  std::vector<bool> is_done(perm.size());
  std::vector<float> first(num_cols);
  for (size_t start = 0; start < perm.size(); ++start) {
    if (is_done[start]) continue;
    std::copy_n(matrix.row<float>(static_cast<int64_t>(start)), num_cols, first.data());
    size_t i = start;
    for (;;) {
      is_done[i] = true;
      const auto from = static_cast<size_t>(perm[i]);
      float* to = matrix.row<float>(static_cast<int64_t>(i));
      if (from == start) {
        std::copy_n(first.data(), num_cols, to);
        break;
      }
      std::copy_n(matrix.row<float>(static_cast<int64_t>(from)), num_cols, to);
      i = from;
    }
  }
}

void permute_both(ExecContext& context, const Columns& perm, Matrix matrix) {
  permute_columns(context, perm, matrix);
  permute_rows(perm, matrix);
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value};
  return sum / static_cast<double>(values.size());
}

// Replaces a matrix, its diagonal damped as far as needed, by its lower Cholesky factor.
void factor_damped(ExecContext& context, const std::string& name, double damp, Matrix a) {
  constexpr double kDampMax = 1.0;
  HALLEY_CHECK(0 < damp && damp <= kDampMax, damp);
  const int64_t K = a.num_rows;
  std::vector<float> diagonal;
  for (int64_t k = 0; k < K; ++k) diagonal.push_back(a.row<float>(k)[k]);
  const double mean = mean_of(diagonal);
  for (;;) {
    for (int64_t k = 0; k < K; ++k) {
      a.row<float>(k)[k] = diagonal[static_cast<size_t>(k)] + static_cast<float>(damp * mean);
    }
    const int64_t bad_channel = factor_cholesky(context, a);
    if (bad_channel < 0) return;
    if (damp >= kDampMax) {
      throw InputError(str(name,
                           ": expected inputs whose Gram matrix is positive definite after "
                           "damping, got one that is not with ",
                           damp, " of its mean diagonal ", mean,
                           " added. Use other calibration text; where inputs are not finite, the "
                           "model does not fit in f32."));
    }
    damp = std::min(kDampMax, 10 * damp);
    // The failed attempt did not touch the upper triangle: restore the lower one from it.
    for_rows(context, K, [&](int64_t row) {
      for (int64_t i = 0; i < row; ++i) a.row<float>(row)[i] = a.row<float>(i)[row];
    });
  }
}

// The upper factor U of inverse(gram) = U^T U in place of gram, which is damped. With J the
// reversal of rows and columns: J gram J = L L^T gives inverse(gram) = J L^-T L^-1 J, so that
// U = J L^-1 J.
void factor_inverse(ExecContext& context, const std::string& name, double damp, Matrix gram) {
  Columns reversed(static_cast<size_t>(gram.num_rows));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  permute_both(context, reversed, gram);
  factor_damped(context, name, damp, gram);
  invert_lower(context, gram);
  permute_both(context, reversed, gram);
}

// The state of rounding one weight. Columns are permuted to the order of rounding.
struct Work {
  Matrix w;            // [N, K]; columns not yet rounded compensate the errors so far
  ConstMatrix factor;  // U of factor_inverse()
  const GridRule& rule;
  const Columns& perm;
  bool has_static_groups = false;
  QuantizedWeight weight;   // columns in file order
  std::vector<Grid> grids;  // [N, num_groups]

  int64_t group_of(int64_t column) const {
    return (has_static_groups ? perm[static_cast<size_t>(column)] : column) / weight.group_size;
  }
  // Fits the grid of a group to the weights [begin, end) of row n as they are now.
  void fit(int64_t n, int64_t group) {
    const int64_t begin = group * weight.group_size;
    const int64_t end = std::min(weight.K, begin + weight.group_size);
    const Grid grid =
        rule.fit(n, group, {w.row<float>(n) + begin, static_cast<size_t>(end - begin)});
    grids[static_cast<size_t>(n * weight.num_groups() + group)] = grid;
    set_grid(weight, n, group, grid);
  }
};

// Blocks end where groups do, so that a group's grid is fitted when all earlier columns are
// rounded.
int64_t block_end(const QuantizedWeight& weight, int64_t begin) {
  const int64_t group_size = weight.group_size;
  const int64_t end = group_size <= kBlockColumns
                          ? begin + kBlockColumns / group_size * group_size
                          : std::min(begin + kBlockColumns, (begin / group_size + 1) * group_size);
  return std::min(end, weight.K);
}

// Rounds columns [begin, end) of row n. Writes the errors by which later columns must change, in
// units of the factor's rows. `factor`: the block's part of U, [end - begin, end - begin].
void round_row(Work& work, int64_t n, int64_t begin, ConstMatrix factor, float* errors) {
  float* w = work.w.row<float>(n) + begin;
  uint8_t* codes = work.weight.codes.data() + n * work.weight.K;
  const int64_t num_columns = factor.num_cols;
  for (int64_t i = 0; i < num_columns; ++i) {
    const int64_t group = work.group_of(begin + i);
    if (!work.has_static_groups && (begin + i) % work.weight.group_size == 0) work.fit(n, group);
    const Grid& grid = work.grids[static_cast<size_t>(n * work.weight.num_groups() + group)];
    const uint8_t code = work.rule.round(grid, w[i]);
    codes[work.perm[static_cast<size_t>(begin + i)]] = code;
    const float* row = factor.row<float>(i);
    const float value = grid.scale * static_cast<float>(int{code} - int{grid.zero});
    const float error = (w[i] - value) / row[i];
    errors[i] = error;
    for (int64_t j = i + 1; j < num_columns; ++j) w[j] -= error * row[j];
  }
}

void round_columns(ExecContext& context, Work& work) {
  const int64_t K = work.weight.K;
  std::vector<float> error_memory(static_cast<size_t>(work.weight.N * kBlockColumns));
  for (int64_t begin = 0; begin < K;) {
    const int64_t end = block_end(work.weight, begin);
    const ConstMatrix rows = work.factor.rows(begin, end);
    const Matrix errors = f32_matrix(error_memory.data(), work.weight.N, end - begin);
    for_rows(context, work.weight.N, [&](int64_t n) {
      round_row(work, n, begin, rows.cols(begin, end), errors.row<float>(n));
    });
    subtract_gemm(context, errors, rows.cols(end, K), work.w.cols(end, K));
    begin = end;
  }
}

}  // namespace

QuantizedWeight solve_gptq(ExecContext& context, const std::string& name, Matrix w, Matrix gram,
                           const GridRule& rule, const GptqOptions& options) {
  const int64_t K = w.num_cols;
  HALLEY_CHECK(gram.num_rows == K && gram.num_cols == K, gram.num_rows, gram.num_cols, K);
  remove_dead_channels(context, w, gram);
  const Columns perm = rounding_perm(gram, options.has_act_order);
  Work work = {w, gram, rule, perm, options.has_static_groups, rule.start(w.num_rows, K), {}};
  work.grids.resize(work.weight.scales.size());
  if (options.has_static_groups) {
    for_rows(context, w.num_rows, [&](int64_t n) {
      for (int64_t group = 0; group < work.weight.num_groups(); ++group) work.fit(n, group);
    });
  }
  if (options.has_act_order) {
    permute_columns(context, perm, w);
    permute_both(context, perm, gram);
  }
  factor_inverse(context, name, options.damp, gram);
  round_columns(context, work);
  if (options.has_act_order && !options.has_static_groups) {
    work.weight.group_of_input.resize(perm.size());
    for (int64_t i = 0; i < K; ++i) {
      work.weight.group_of_input[static_cast<size_t>(perm[static_cast<size_t>(i)])] =
          static_cast<int32_t>(i / work.weight.group_size);
    }
  }
  return std::move(work.weight);
}

}  // namespace halley
