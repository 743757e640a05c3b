// Calibration statistics of a linear layer's input.
#pragma once

#include <cstdint>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/host_buffer.h"
#include "halley/core/matrix.h"

namespace halley {

/// Statistics over all calibration tokens that reached the layer.
struct InputStats {
  int64_t K = 0;
  int64_t num_tokens = 0;
  std::vector<float> abs_max;   // [K]
  std::vector<float> abs_mean;  // [K]
  /// The Gram matrix X^T X of the tokens (GPTQ's Hessian up to a factor), [K, K] f32; empty unless
  /// asked for.
  HostBuffer gram;
  /// A sample of tokens at even distances, [num_rows, K]: as many as asked for, or all where fewer
  /// are expected; fewer where not all expected tokens came.
  std::vector<float> rows;
  int64_t num_rows = 0;

  Matrix gram_matrix();
  ConstMatrix gram_matrix() const;
  ConstMatrix row_matrix() const;
};

struct StatsRequest {
  bool has_gram = false;
  int64_t num_rows = 0;             // of InputStats::rows, at most
  int64_t num_tokens_expected = 0;  // sets the distance of the rows; 0: the first tokens
};

/// Gathers statistics piece by piece; the pieces' sizes do not change a bit of the result. One
/// caller at a time.
class InputStatsCollector {
 public:
  /// Throws DeviceError where there is no memory for the Gram matrix.
  InputStatsCollector(int64_t K, const StatsRequest& request);
  /// x [T, K] f32
  void add(ExecContext& context, ConstMatrix x);
  /// Returns the statistics; the collector is used up. Throws InputError where an input was
  /// infinite or NaN, or where the Gram matrix overflows.
  InputStats finish(ExecContext& context);

 private:
  void add_magnitudes(ExecContext& context, ConstMatrix x);
  void keep_rows(ConstMatrix x);
  void add_gram_blocks(ExecContext& context, ConstMatrix x);

  StatsRequest request_;
  InputStats stats_;
  std::vector<double> abs_sum_;  // [K]
  std::vector<float> waiting_;   // tokens that are not yet in the Gram matrix, [<= a block, K]
};

/// A deep copy, for scale_stats(), permute_stats() and searches.
InputStats copy_of(const InputStats& stats);
/// The same without the Gram matrix and with these rows [num_rows, K].
InputStats sample_of(const InputStats& stats, std::vector<float> rows, int64_t num_rows);
/// The statistics of x[k] * factors[k], for factors [K] above zero: of an input that was smoothed.
void scale_stats(InputStats& stats, const std::vector<float>& factors);
/// The statistics of an input whose channel i is channel perm[i] of this one; `perm` [K] is a
/// permutation.
void permute_stats(InputStats& stats, const std::vector<int32_t>& perm);

}  // namespace halley
